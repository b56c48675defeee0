"""The command `edgekit` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edgekit import __version__
from edgekit.cli import trust
from edgekit.cli.cache import app as cache_app
from edgekit.cli.compare import compare
from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.export import export
from edgekit.cli.field.commands import app as field
from edgekit.cli.fleet import app as fleet
from edgekit.cli.help import hide_switch_types
from edgekit.cli.init.command import init
from edgekit.cli.optimize import optimize
from edgekit.cli.reproduce import reproduce
from edgekit.cli.run import run
from edgekit.cli.search.command import search
from edgekit.core import telemetry
from edgekit.core.terminal_progress import show_progress

telemetry.disable()  # for this process and its children

SampleKind = Literal["image", "vector", "audio", "window", "tensors"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Take a trained model to the edge: profile, distill, prune, quantize, convert, benchmark, bundle.",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"edgekit {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options shared by all commands."""


app.command()(init)
app.command()(run)
app.command()(optimize)


@app.command()
def report(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its name below --out.")],
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("artifacts"),
    mlflow: Annotated[str | None, typer.Option(metavar="URI", help="Log the run to this MLflow store.")] = None,
) -> None:
    """Write report.html of a finished run, unless the existing page is up to date.

    Exit codes: 4: stages are missing; 8: an artifact was changed after it was sealed.
    """
    with errors_as_exit_codes():
        from edgekit.core import lock
        from edgekit.report import finished_run, html
        from edgekit.workbook.stage import RUN_LOCK

        folder = finished_run.find_run(run_, out)
        finished_run.verify_artifacts(folder, finished_run.read_result(folder))
        if mlflow is not None:
            from edgekit.report import mlflow as tracking

            tracking.check_store(mlflow)
        with lock.hold(folder / RUN_LOCK, f"edgekit report {run_}"):
            print(html.write_page(folder))
        if mlflow is not None:
            with show_progress("MLflow"):
                run_url = tracking.log_run(folder, mlflow)
            print(f"MLflow     {run_url}")


app.command()(search)
app.command()(compare)


@app.command()
def status(
    run_: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its name below --out.")],
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("artifacts"),
    all_: Annotated[bool, typer.Option("--all", help="Print every variant and every note of the result, too.")] = False,
) -> None:
    """Show the state of each stage of a run: when it finished, how long it took, and why it is stale."""
    with errors_as_exit_codes():
        from edgekit.cli.status import show

        show(Path(run_) if Path(run_).is_dir() else out / run_, all_)


app.command()(reproduce)


@app.command()
def bundle(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A .tflite, .onnx or OpenVINO .xml file.")],
    golden: Annotated[
        list[Path], typer.Option(metavar="PATH", help="Real inputs: a file or a folder. Repeat for more.")
    ],
    labels: Annotated[str | None, typer.Option(metavar="FILE|LIST", help="File of class names, or a,b,c.")] = None,
    preprocess: Annotated[
        str | None, typer.Option(metavar="FILE|YAML", help="Steps as in a config: '[{step: scale, factor: 0.0039}]'.")
    ] = None,
    golden_samples: Annotated[int, typer.Option(min=1, max=1000, help="Number of golden samples to record.")] = 16,
    name: Annotated[str | None, typer.Option(help="Name of the bundle; by default the file's name.")] = None,
    version: Annotated[str, typer.Option(help="Version of the bundle.")] = "1.0.0",
    task: Annotated[
        Literal["auto", "classification", "regression", "detection", "segmentation", "embedding", "raw"],
        typer.Option(help="What the outputs mean; auto: classification, or a classic model's own task."),
    ] = "auto",
    activation: Annotated[
        Literal["auto", "softmax", "none"],
        typer.Option(help="The function that turns outputs into probabilities; auto inspects the outputs."),
    ] = "auto",
    kind: Annotated[SampleKind | None, typer.Option(help="Kind of raw sample, if unclear.")] = None,
    dtype: Annotated[
        Literal["uint8", "int8", "float32"] | None,
        typer.Option(
            help="Type of raw samples. By default images are uint8, others float32 or the model's own integers."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="FILE|LIST", help="Columns of tables that the model takes, in the model's order: a,b,c."),
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="HxW[xC]", help="Size of raw images, height first.")] = None,
    fit: Annotated[
        Literal["stretch", "letterbox", "crop"] | None,
        typer.Option(help="How pictures in files get their size; by default they are stretched."),
    ] = None,
    boxes: Annotated[
        str | None, typer.Option(metavar="NAME", help="Output with the boxes of a detection, if unclear.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Lowest probability of a detected box [0.5].")] = None,
    layout: Annotated[
        Literal["NHWC", "NCHW"] | None, typer.Option(help="Layout of the model input, if unclear.")
    ] = None,
    sample_rate: Annotated[int | None, typer.Option(min=1, help="Sampling rate in Hz; a vector is then audio.")] = None,
    range_: Annotated[str | None, typer.Option("--range", metavar="LOW,HIGH", help="Range of float samples.")] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LOW,HIGH", help="Range of one of several inputs. Repeat for more."),
    ] = None,
    architecture: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Allow only this architecture, named as by `uname -m`.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Allowed difference, as a share of the outputs' range [0.005; integers 0.05].")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="IN=OUT", help="An output fed back into an input; by default every NAME and new_NAME."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("."),
) -> None:
    """Make a bundle from a ready-made model. Its self-test checks outputs recorded from real inputs."""
    with errors_as_exit_codes():
        from edgekit.cli.bundle import builder, options
        from edgekit.report.summary import copy_command

        request = options.BundleOptions(
            model=model,
            golden=tuple(golden),
            labels=options.parse_labels(labels),
            preprocess=options.parse_preprocess(preprocess),
            samples=golden_samples,
            name=name,
            version=version,
            task=task,
            activation=activation,
            kind=kind,
            dtype=dtype,
            size=options.parse_size(size),
            layout=layout,
            sample_rate_hz=sample_rate,
            range=options.parse_range(range_),
            input_ranges=options.parse_input_ranges(input_range or ()),
            fit=fit,
            boxes=boxes,
            threshold=threshold,
            architectures=tuple(architecture or ()),
            tolerance=tolerance,
            states=options.parse_states(state or ()),
            columns=options.parse_labels(columns, "--columns", "column"),
        )
        path = builder.build_bundle(request, out, print)
        print(f"wrote       {path} ({path.stat().st_size:,} bytes) and {path.parent / 'edgerun.pyz'}")
        print(f"next        {copy_command(path.parent, path.name)}")


@app.command()
def load(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip.")],
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="single_stream, server or offline; by default all.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Arrivals per second in the scenario server; by default half of the throughput."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds of each scenario; by default MLPerf's minimum.")
    ] = None,
    p99_ms: Annotated[
        float | None, typer.Option(help="Limit on the p99 latency of server, in ms; by default 10.")
    ] = None,
    max_rate: Annotated[bool, typer.Option("--max-rate", help="Find the highest rate within the p99 limit.")] = False,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads of the interpreter.")] = 1,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a bundle under load with MLPerf's LoadGen, from raw sample to answer.

    A run shorter than MLPerf requires (600 s each) is marked short. Exit codes: 0: measured, whether or not the limit
    is met; 6: the measured process died.
    """
    with errors_as_exit_codes():
        from edgekit.cli import load as command

        request = command.LoadRequest(bundle, tuple(scenario or ()), rate, seconds, p99_ms, max_rate, threads)
        command.run(request, json_, print)


UNPARSED: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    "add_help_option": False,
}
"""Settings to register a command that passes its arguments on without parsing them."""


@app.command(**UNPARSED)
def serve(context: typer.Context) -> None:
    """Serve bundles over HTTP with the Open Inference Protocol v2. This is the same as `edgerun serve`."""
    from edgekit.runner.cli import main as run_on_device

    raise typer.Exit(run_on_device(["serve", *context.args]))


for command in (export, trust.sign, trust.verify):
    app.command()(command)
app.add_typer(trust.app, name="trust")
app.add_typer(fleet, name="fleet")
app.add_typer(field, name="field")
app.add_typer(cache_app, name="cache")

hide_switch_types(app)
