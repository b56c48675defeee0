"""Make the bundle. It is written only after it has passed its self-test with `edgerun.pyz` in a new process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit import __version__
from edgekit.cli.bundle import golden_outputs, specs, tensor_specs
from edgekit.cli.bundle.model_facts import ModelFacts, examine_model
from edgekit.cli.bundle.options import BundleOptions
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
from edgekit.stages.bundle.device import RUNNER, requirements, run_selftest, text_members

Say = Callable[[str], None]
MAX_LISTED = 8


def complete_options(options: BundleOptions, facts: ModelFacts, say: Say) -> BundleOptions:
    """Complete the options with the task, and with the labels and columns that the model or the inputs name."""
    task = options.task
    if task == "auto":
        task = "regression" if facts.is_regressor else "classification"
    model_labels = _model_labels(task, facts)
    if model_labels and not options.labels:
        say(f"labels      {_list_some(model_labels)}: the model's own names")
    elif sorted(model_labels) == sorted(options.labels) and model_labels != options.labels:
        raise ConfigError(
            f"--labels: {_list_some(options.labels)}; the model's own order is "
            f"{_list_some(model_labels)}; use that order, or leave the option out"
        )
    columns = options.columns or _table_columns(options, facts, say)
    return replace(options, task=task, labels=options.labels or model_labels, columns=columns)


def _model_labels(task: str, facts: ModelFacts) -> tuple[str, ...]:
    """Return the labels that a classic model (such as a decision tree) names: its classes, or its only value's name."""
    if task == "classification":
        return facts.classes
    is_single_value = facts.is_regressor and facts.output.shape[1:] == (1,)
    return (facts.output.name,) if task == "regression" and is_single_value else ()


def _table_columns(options: BundleOptions, facts: ModelFacts, say: Say) -> tuple[str, ...]:
    """Return the names of the columns that hold a vector's features, from the first .csv file among the golden inputs.

    The result is empty if the samples are not vectors or if no input is a .csv file.
    """
    if (
        len(facts.inputs) > 1
        or len(facts.input.shape) != 2
        or options.kind not in (None, "vector")
        or options.sample_rate_hz
    ):
        return ()
    sources = (sorted(source.rglob("*.csv")) if source.is_dir() else [source] for source in options.golden)
    tables = (file for files in sources for file in files if file.suffix.lower() == ".csv" and file.is_file())
    path = next(tables, None)
    if path is None:
        return ()
    features = facts.input.shape[1]
    header, numeric = _read_header(path)
    columns = header if len(header) == features else numeric
    if len(columns) != features:
        raise ConfigError(
            f"--columns: {path} has {len(header)} columns ({_list_some(header)}), but the model takes "
            f"{features} features; name the columns in the order in which the model was trained"
        )
    say(f"columns     {_list_some(columns)}: those of {path.name}, in this order")
    return columns


def _read_header(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all column names of a table, and those of the columns with a number in the first row."""
    try:
        with open(path, "rb") as stream:
            first = next(table.pieces(str(path), stream.read(table.LARGEST_BYTES), 1))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    row = first.rows[0] if first.rows else [""] * len(first.header)
    numeric = [name for name, cell in zip(first.header, row, strict=True) if table.is_number(cell)]
    return first.header, tuple(numeric)


def _list_some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_LISTED]) + (f", … ({len(names)})" if len(names) > MAX_LISTED else "")


TOLERANCE_FLOAT, TOLERANCE_INTEGER = 0.005, 0.05
"""Allowed difference as a fraction of the outputs' range, as in the bundle stage."""
DEFAULT_THRESHOLD = 0.5
"""Default of the lowest probability at which a box is reported."""


def build_bundle(options: BundleOptions, out: Path, say: Say) -> Path:
    """Write NAME-TARGET-VERSION.edge.zip and `edgerun.pyz` into `out` and return the path of the bundle."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; name a folder")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        working_folder = Path(name)
        two_classes = options.task in ("auto", "classification") and len(options.labels) == 2
        facts = examine_model(
            options.model,
            working_folder,
            tensor_specs.model_picture_size(options),
            two_classes,
            options.states,
            options.task,
        )
        options = complete_options(options, facts, say)
        draft = _draft_manifest(options, facts)
        _print_facts(options, draft, facts, say)
        paths = golden_outputs.candidate_files(options, draft.raw, bool(facts.states))
        samples, answers, interpreter = golden_outputs.record_outputs(options, draft, facts, paths, working_folder)
        specs.check_outputs(draft, answers, say)
        selected = golden_outputs.golden_positions("stream" if facts.states else options.task, answers, options.samples)
        say(
            f"golden      {len(selected)} of {len(answers)} inputs that were run on {interpreter['interpreter']} "
            f"{interpreter['version']}"
        )
        if interpreter["label"]:
            say(f"label       {interpreter['label']}")
        share = options.tolerance or (TOLERANCE_INTEGER if facts.integers else TOLERANCE_FLOAT)
        manifest = replace(
            draft,
            activation=golden_outputs.choose_activation(options, facts, answers, say),
            golden={**draft.golden, "atol": golden.tolerance(answers[selected], share)},
            provenance=_provenance(facts, interpreter["interpreter"]),
        )
        file = f"{manifest.name}-{manifest.target}-{manifest.version}.edge.zip"
        notes = [f"Made from the ready file `{options.model.name}`; its accuracy was not measured"]
        content = {
            **facts.files,
            **golden.golden_files(samples[selected], answers[selected]),
            **text_members(manifest, file, notes),
        }
        # The self-test runs on this machine, so this copy of the bundle must not be limited to other architectures.
        bundles.write(working_folder / file, replace(manifest, architectures=[]), content)
        pyz.build(working_folder / RUNNER)
        report = run_selftest(working_folder / RUNNER, working_folder / file)
        bundles.write(working_folder / file, manifest, content)
        say(
            f"selftest    passed in a fresh process on {report['interpreter']} {report['version']}: "
            f"max |Δ| {report['max_abs_delta']:.3g}, allowed {report['atol']:.3g}"
        )
        make_folder(out)
        write_atomically(out / file, (working_folder / file).read_bytes())
        pyz.build(out / RUNNER)
    return out / file


def _draft_manifest(options: BundleOptions, facts: ModelFacts) -> Manifest:
    """Return the manifest without the parts that depend on the recorded outputs."""
    inputs, raw = _input_specs(options, facts)
    # The samples of a stream cannot be selected for clear answers, because they must follow one another. So the
    # self-test does not compare the classes of its answers with the golden ones.
    checks_top1 = options.task == "classification" and not facts.states
    return Manifest(
        name=options.bundle_name,
        version=options.version,
        target=facts.target,
        variant=f"ready-made-{facts.target}",
        raw=raw,
        inputs=inputs,
        outputs=specs.output_specs(options, facts, raw),
        preprocess=[dict(step) for step in options.preprocess],
        labels=list(options.labels),
        model_files=sorted(facts.files),
        golden={"inputs": golden.INPUTS, "outputs": golden.OUTPUTS, "atol": 0.0, "top1": checks_top1},
        requirements=requirements(facts.target),
        architectures=list(options.architectures),
        task=options.task,
        activation=golden_outputs.FIXED_ACTIVATIONS.get(options.task, "none"),
        boxes=boxes.BoxOptions(options.threshold or DEFAULT_THRESHOLD)._asdict()
        if options.task == "detection"
        else None,
        states=facts.states or None,
    )


def _input_specs(options: BundleOptions, facts: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
    if len(facts.inputs) > 1:
        return specs.input_specs(options, facts)
    specs.refuse_multi_input_options(options)
    source = tensor_specs.input_spec(facts.input, options.layout)
    return (source,), tensor_specs.raw_spec(
        options, source, golden_outputs.first_array_dtype(options), bool(facts.states)
    )


def _print_facts(options: BundleOptions, draft: Manifest, facts: ModelFacts, say: Say) -> None:
    for change in facts.changes:
        say(f"changed     {change}")
    source, raw, has_one_input = draft.input, draft.raw, len(draft.inputs) == 1
    inputs = f"{source.dtype}{list(source.shape)} {source.layout}" if has_one_input else f"{len(draft.inputs)} inputs"
    outputs = [f"{each.dtype}{list(each.shape)}" for each in draft.outputs]
    names = [f"{each.name} " if len(outputs) > 1 else "" for each in draft.outputs]
    say(f"model       {inputs}, gives {' and '.join(map(str.__add__, names, outputs))}")
    for state in facts.states:
        say(f"state       {state.input} {state.dtype}{list(state.shape)}, fed back from {state.output}")
    if not has_one_input:
        for line in specs.input_lines(options, facts, raw):
            say(line)
        return
    is_unchanged = passes_through(draft.preprocess, raw.dtype, source.dtype)
    value_range = f" from {raw.range[0]:g} to {raw.range[1]:g}" if raw.range else ""
    rate = f" at {raw.sample_rate_hz} samples a second" if raw.sample_rate_hz else ""
    say(
        f"takes       {raw.kind} "
        f"{raw.dtype}{list(raw.shape)}{value_range}{rate}{', as the model has them' if is_unchanged else ''}"
    )
    say(f"preprocess  {', '.join(step['step'] for step in draft.preprocess) or 'none'}")


def _provenance(facts: ModelFacts, interpreter: str) -> dict[str, Any]:
    """Return the record of the bundle's origin. It contains no path, and it is not enough to rebuild the bundle."""
    libraries = ["numpy", backends.INTERPRETERS[interpreter].distribution]
    if facts.target == "onnx" and facts.changes:
        libraries.append("onnx")
    return {
        **facts.origin,
        "changes": facts.changes,
        "edgekit": __version__,
        "libraries": installed_versions(libraries),
    }
