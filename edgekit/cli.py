"""The `edgekit` command."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit import __version__
from edgekit.config import STAGES, NetworkConfig
from edgekit.errors import BudgetMissed, EdgekitError, ResourceError
from edgekit.plan import Plan, load_plan, own_fields
from edgekit.runner.errors import RunnerError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Take a trained model to the edge: profile, distill, prune, quantize, convert, benchmark, bundle.",
)
INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        print(f"edgekit {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """The options that every command shares."""


@app.command()
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A config file, for example configs/digits.yaml.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one option.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("artifacts"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Run all seven notebooks for one config and print the verdict.

    Exit codes: 0 done, 2 config, 3 budget missed, 4 data or model, 5 conversion, 6 a stage died, 7 resources, 8 trust.
    """
    with _errors_as_exit_codes():
        plan = load_plan(config, set_ or [])
        if dry_run:
            _show_plan(plan, out)
            return
        _walk(plan, out)


def _walk(plan: Plan, out: Path) -> None:
    from edgekit import report, walk

    folder = out / plan.run.name
    _writable(folder)
    seconds: dict[str, float] = {}
    missed: BudgetMissed | None = None
    for step in walk.steps(plan, out):
        started = time.monotonic()
        try:
            walk.execute(step, folder)
        except BudgetMissed as error:
            missed = error
            break
        finally:
            seconds[step.stage] = time.monotonic() - started
    result = report.write_result(plan, folder, seconds)
    report.show(result, folder, Console(width=None if sys.stdout.isatty() else 140))
    if missed:
        raise typer.Exit(missed.exit_code)


def _writable(folder: Path) -> None:
    try:
        (folder / "notebooks").mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot write here ({error.strerror}); choose another folder with --out"
        ) from None


def _show_plan(plan: Plan, out: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    run_ = plan.run
    table = Table(title=f"Plan of run {run_.name} {run_.version}", title_justify="left", title_style="bold")
    for heading in ("notebook", "options"):
        table.add_column(heading, no_wrap=heading == "notebook")
    for number, stage in enumerate(STAGES, 1):
        config = plan.stages[stage]
        options = "  ".join(f"{name}={_brief(getattr(config, name))}" for name in own_fields(type(config)))
        table.add_row(f"{number:02d}_{stage}", escape(options))
    console.print(table)
    limits = [f"accuracy drop ≤ {run_.budget.accuracy_drop_pp:g} pp"]
    limits += [f"p50 ≤ {run_.budget.latency_p50_ms:g} ms"] if run_.budget.latency_p50_ms else []
    limits += [f"size ≤ {run_.budget.size_bytes:,} bytes"] if run_.budget.size_bytes else []
    lines = {
        "Model": _brief(run_.model),
        "Data": "  ".join(f"{name}={value}" for name, value in plan.data.model_dump(exclude_none=True).items()),
        "Targets": ", ".join(run_.targets),
        "Budget": ", ".join(limits),
        "Seed": str(run_.seed),
        "Writes": str(out / run_.name),
    }
    for name, value in lines.items():
        console.print(f"{name:<8} {value}", highlight=False, soft_wrap=True)


def _brief(value: object) -> str:
    """A value as the plan shows it; a network as its builder with its keyword arguments."""
    if isinstance(value, NetworkConfig):
        return f"{value.builder}({', '.join(f'{name}={kwarg}' for name, kwarg in value.kwargs.items())})"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """One clear message on stderr and the code of the design; no traceback for a fault that is the user's."""
    try:
        yield
    except (EdgekitError, RunnerError) as error:
        print(f"edgekit: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print("edgekit: interrupted; finished stages are kept, run the same command again to go on", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
