"""Make the bundle. Nothing is written before `edgerun.pyz` passes its selftest in a fresh process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit import __version__
from edgekit.cli.bundle import golden_outputs, infer, outputs, several_inputs
from edgekit.cli.bundle.examine import ModelFacts, examine
from edgekit.cli.bundle.options import Options
from edgekit.cli.bundle.settle import settled
from edgekit.core import golden
from edgekit.core.cache_key import installed_versions
from edgekit.core.errors import ConfigError
from edgekit.device import pyz
from edgekit.runner import backends, boxes
from edgekit.runner import bundle as bundles
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.encode import passes_through
from edgekit.runner.files import make_folder, write_atomically
from edgekit.stages.bundle.device import RUNNER, prove, requirements, texts

TOLERANCE_FLOAT, TOLERANCE_INTEGER = 0.005, 0.05
"""Allowed difference, share of the outputs' range; the bundle stage's defaults."""
SURE = 0.5
"""The least probability of a box, unless one is asked for: it is there more likely than not."""

Say = Callable[[str], None]


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
        outputs.check(draft, answers, say)
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
        content = {**found.files, **golden.members(samples[kept], answers[kept]), **texts(manifest, file, story)}
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
        outputs=outputs.specs(options, found, raw),
        preprocess=[dict(step) for step in options.preprocess],
        labels=list(options.labels),
        model_files=sorted(found.files),
        golden={"inputs": golden.INPUTS, "outputs": golden.OUTPUTS, "atol": 0.0, "top1": top1},
        requirements=requirements(found.target),
        architectures=list(options.architectures),
        task=options.task,
        activation=golden_outputs.UNSEEN.get(options.task, "none"),
        boxes=boxes.Options(options.threshold or SURE)._asdict() if options.task == "detection" else None,
        states=found.states or None,
    )


def _input_specs(options: Options, found: ModelFacts) -> tuple[tuple[TensorSpec, ...], RawSpec]:
    if len(found.inputs) > 1:
        return several_inputs.specs(options, found)
    several_inputs.check_one(options)
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
        for line in several_inputs.lines(options, found, raw):
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
