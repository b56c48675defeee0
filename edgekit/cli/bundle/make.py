"""Make the bundle. Nothing is written before `edgerun.pyz` passes its selftest in a fresh process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit import __version__
from edgekit.cli.bundle import golden_outputs, infer, specs
from edgekit.cli.bundle.examine import ModelFacts, examine
from edgekit.cli.bundle.options import Options
from edgekit.core import golden
from edgekit.core.cache_key import installed_versions
from edgekit.core.errors import ConfigError
from edgekit.device import pyz
from edgekit.runner import backends, boxes
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.errors import InputError
from edgekit.runner.files import make_folder, write_atomically
from edgekit.runner.input_encoding import passes_through
from edgekit.runner.inputs import table
from edgekit.stages.bundle.device import RUNNER, prove, requirements, texts

Say = Callable[[str], None]
SHOWN = 8


def settled(options: Options, found: ModelFacts, say: Say) -> Options:
    """The options with a task, and with labels and columns where model and inputs name them; what was found is said."""
    task = options.task
    if task == "auto":
        task = "regression" if found.is_regressor else "classification"
    own = _own_labels(task, found)
    if own and not options.labels:
        say(f"labels      {_some(own)}: the model's own names")
    elif sorted(own) == sorted(options.labels) and own != options.labels:
        raise ConfigError(
            f"--labels: {_some(options.labels)}; the model's own order is {_some(own)}: give that, or leave them out"
        )
    columns = options.columns or _columns(options, found, say)
    return replace(options, task=task, labels=options.labels or own, columns=columns)


def _own_labels(task: str, found: ModelFacts) -> tuple[str, ...]:
    """Those that a classic model names: its classes, or what its one value is called."""
    if task == "classification":
        return found.classes
    single = found.is_regressor and found.output.shape[1:] == (1,)
    return (found.output.name,) if task == "regression" and single else ()


def _columns(options: Options, found: ModelFacts, say: Say) -> tuple[str, ...]:
    """The columns that a vector's features have in the first table among the inputs; none where there is no table."""
    if (
        len(found.inputs) > 1
        or len(found.input.shape) != 2
        or options.kind not in (None, "vector")
        or options.sample_rate_hz
    ):
        return ()
    paths = [each for given in options.golden for each in (sorted(given.rglob("*.csv")) if given.is_dir() else [given])]
    path = next((each for each in paths if each.suffix.lower() == ".csv" and each.is_file()), None)
    if path is None:
        return ()
    features = found.input.shape[1]
    header, numbers = _header(path)
    columns = header if len(header) == features else numbers
    if len(columns) != features:
        raise ConfigError(
            f"--columns: {path} has {len(header)} columns ({_some(header)}), the model takes {features} features; "
            "name its columns, in the order in which the model was trained"
        )
    say(f"columns     {_some(columns)}: those of {path.name}, in this order")
    return columns


def _header(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All names of a table, and those of columns with a number in the first row."""
    try:
        with open(path, "rb") as stream:
            first = next(table.pieces(str(path), stream.read(table.LARGEST_BYTES), 1))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    row = first.rows[0] if first.rows else [""] * len(first.header)
    numbers = [name for name, cell in zip(first.header, row, strict=True) if table.is_number(cell)]
    return first.header, tuple(numbers)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)})" if len(names) > SHOWN else "")


TOLERANCE_FLOAT, TOLERANCE_INTEGER = 0.005, 0.05
"""Allowed difference, share of the outputs' range; the bundle stage's defaults."""
SURE = 0.5
"""The least probability of a box, unless one is asked for: it is there more likely than not."""


def make(options: Options, out: Path, say: Say) -> Path:
    """Write NAME-TARGET-VERSION.edge.zip and `edgerun.pyz` into `out`; the bundle's path."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; name a folder")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        home = Path(name)
        two = options.task in ("auto", "classification") and len(options.labels) == 2
        found = examine(options.model, home, infer.size_inside(options), two, options.states, options.task)
        options = settled(options, found, say)
        draft = _draft(options, found)
        _print_facts(options, draft, found, say)
        paths = golden_outputs.candidates(options, draft.raw, bool(found.states))
        samples, answers, by = golden_outputs.record(options, draft, found, paths, home)
        specs.check_outputs(draft, answers, say)
        kept = golden_outputs.keep("stream" if found.states else options.task, answers, options.samples)
        say(f"golden      {len(kept)} of {len(answers)} inputs that were run on {by['interpreter']} {by['version']}")
        if by["label"]:
            say(f"label       {by['label']}")
        share = options.tolerance or (TOLERANCE_INTEGER if found.integers else TOLERANCE_FLOAT)
        manifest = replace(
            draft,
            activation=golden_outputs.activation(options, found, answers, say),
            golden={**draft.golden, "atol": golden.tolerance(answers[kept], share)},
            provenance=_origin(found, by["interpreter"]),
        )
        file = f"{manifest.name}-{manifest.target}-{manifest.version}.edge.zip"
        story = [f"Made from the ready file `{options.model.name}`; its accuracy was not measured"]
        content = {**found.files, **golden.golden_files(samples[kept], answers[kept]), **texts(manifest, file, story)}
        bundles.write(home / file, replace(manifest, architectures=[]), content)  # this machine may be none of them
        pyz.build(home / RUNNER)
        report = prove(home / RUNNER, home / file)
        bundles.write(home / file, manifest, content)
        say(
            f"selftest    passed in a fresh process on {report['interpreter']} {report['version']}: "
            f"max |Δ| {report['max_abs_delta']:.3g}, allowed {report['atol']:.3g}"
        )
        make_folder(out)
        write_atomically(out / file, (home / file).read_bytes())
        pyz.build(out / RUNNER)
    return out / file


def _draft(options: Options, found: ModelFacts) -> Manifest:
    """The manifest, without what only the recorded outputs show."""
    sources, raw = _input_specs(options, found)
    top1 = options.task == "classification" and not found.states  # the steps of a stream are not chosen
    return Manifest(
        name=options.bundle_name,
        version=options.version,
        target=found.target,
        variant=f"ready-made-{found.target}",
        raw=raw,
        inputs=sources,
        outputs=specs.output_specs(options, found, raw),
        preprocess=[dict(step) for step in options.preprocess],
        labels=list(options.labels),
        model_files=sorted(found.files),
        golden={"inputs": golden.INPUTS, "outputs": golden.OUTPUTS, "atol": 0.0, "top1": top1},
        requirements=requirements(found.target),
        architectures=list(options.architectures),
        task=options.task,
        activation=golden_outputs.UNSEEN.get(options.task, "none"),
        boxes=boxes.BoxOptions(options.threshold or SURE)._asdict() if options.task == "detection" else None,
        states=found.states or None,
    )


def _input_specs(options: Options, found: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
    if len(found.inputs) > 1:
        return specs.input_specs(options, found)
    specs.check_one(options)
    source = infer.input_spec(found.input, options.layout)
    return (source,), infer.raw_spec(options, source, golden_outputs.dtype_seen(options), bool(found.states))


def _print_facts(options: Options, draft: Manifest, found: ModelFacts, say: Say) -> None:
    for change in found.changes:
        say(f"changed     {change}")
    source, raw, is_one = draft.input, draft.raw, len(draft.inputs) == 1
    takes = f"{source.dtype}{list(source.shape)} {source.layout}" if is_one else f"{len(draft.inputs)} inputs"
    gives = [f"{each.dtype}{list(each.shape)}" for each in draft.outputs]
    called = [f"{each.name} " if len(gives) > 1 else "" for each in draft.outputs]
    say(f"model       {takes}, gives {' and '.join(map(str.__add__, called, gives))}")
    for state in found.states:
        say(f"state       {state.input} {state.dtype}{list(state.shape)}, fed back from {state.output}")
    if not is_one:
        for line in specs.input_lines(options, found, raw):
            say(line)
        return
    as_is = passes_through(draft.preprocess, raw.dtype, source.dtype)
    limits = f" from {raw.range[0]:g} to {raw.range[1]:g}" if raw.range else ""
    rate = f" at {raw.sample_rate_hz} samples a second" if raw.sample_rate_hz else ""
    say(
        f"takes       {raw.kind} {raw.dtype}{list(raw.shape)}{limits}{rate}{', as the model has them' if as_is else ''}"
    )
    say(f"preprocess  {', '.join(step['step'] for step in draft.preprocess) or 'none'}")


def _origin(found: ModelFacts, interpreter: str) -> dict[str, Any]:
    """Where the bundle came from: no path, and nothing that it could be rebuilt from."""
    libraries = ["numpy", backends.INTERPRETERS[interpreter].distribution]
    if found.target == "onnx" and found.changes:
        libraries.append("onnx")
    return {
        **found.origin,
        "changes": found.changes,
        "edgekit": __version__,
        "libraries": installed_versions(libraries),
    }
