"""Which variants the stage is to make: networks that differ, in every precision that a target offers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ConversionError, StageError
from edgekit.targets import precisions
from edgekit.targets.files import MINMAX, Job, Method, Quantization, Step, plain_method

if TYPE_CHECKING:
    from edgekit.artifact import Artifact
    from edgekit.stages.convert import Config

SPEC, WEIGHTS = "model.json", "weights.safetensors"
ORIGINS = {
    "baseline": ("profile", "model"),
    "student": ("distill", "model"),
    "pruned": ("prune", "model"),
    "sparse": ("prune", "sparse"),
}
TUNED = "pruned"
"""The model that the quantize stage works on."""


def variant_name(model: str, precision: str, target: str) -> str:
    """Of a variant and of its folder."""
    return f"{model}-{precision}-{target}"


@dataclass(frozen=True)
class Network:
    """A saved network to convert. Int8 comes about by `quantization`: `mixed` where that keeps layers in float.

    After QAT it comes from `tuned` weights, and OpenVINO takes the learnt ranges of `nncf` instead.
    """

    name: str
    folder: Path
    quantization: Quantization = MINMAX
    tuned: Path | None = None
    nncf: Path | None = None

    def step(self, precision: str, out: Path) -> Step:
        """One variant to make."""
        if precision == "int8":
            if self.tuned:
                return Step(precision, "qat", self.tuned, out, self.nncf, self.quantization)
            method: Method = "mixed" if self.quantization.keep_float else "ptq"
            return Step(precision, method, self.folder, out, quantization=self.quantization)
        return Step(precision, plain_method(precision), self.folder, out)

    def jobs(self, config: Config, calibration: Path, out: Path) -> list[Job]:
        """One for each target, the float model first: the others are compared with it."""
        jobs = []
        for target in config.targets:
            wanted = [precision for precision in precisions(target) if precision in config.precisions]
            steps = tuple(self.step(each, out / variant_name(self.name, each, target)) for each in wanted)
            jobs.append(Job(self.name, target, calibration, steps))
        return jobs


def networks(source: Artifact, wanted: Sequence[str]) -> tuple[list[Network], list[str]]:
    """Networks that differ from one another, and a note for each that was left out. Members are digest-checked."""
    found: dict[tuple[str, str], str] = {}
    kept: list[Network] = []
    notes: list[str] = []
    quantized = source.ancestor("quantize")
    decision = json.loads(quantized.file("decision.json").read_text())
    chosen = Quantization.from_json(decision["quantization"])
    # after QAT or mixed precision `chosen` fits that one network alone
    post_training = Quantization.from_json(decision["ptq_quantization"])
    tuned_origin = _key(source, TUNED)
    for name in wanted:
        key = _key(source, name)
        if key is None:
            notes.append(f"{name}: left out, stage {ORIGINS[name][0]!r} made no such network")
        elif key in found:
            notes.append(f"{name}: left out, it is the same network as {found[key]}")
        else:
            found[key] = name
            stage, folder = ORIGINS[name]
            saved = _checked(source.ancestor(stage), folder, (SPEC, WEIGHTS))
            if key != tuned_origin:
                kept.append(Network(name, saved, post_training))
            elif decision["method"] == "qat":
                tuned, nncf = _checked(quantized, "model", (SPEC, WEIGHTS)), _checked(quantized, "nncf")
                kept.append(Network(name, saved, chosen, tuned, nncf))
            else:
                kept.append(Network(name, saved, chosen))
    if not kept:
        raise ConversionError(f"convert.models: got {list(wanted)}, and none of them was made: {'; '.join(notes)}")
    return kept, notes


def _key(source: Artifact, name: str) -> tuple[str, str] | None:
    """Digests of a network's two files; None where the stage made none."""
    stage, folder = ORIGINS[name]
    try:
        files = source.ancestor(stage).files
    except StageError:
        return None
    if f"{folder}/{WEIGHTS}" not in files:
        return None
    return files[f"{folder}/{SPEC}"], files[f"{folder}/{WEIGHTS}"]


def _checked(artifact: Artifact, folder: str, names: tuple[str, ...] = ()) -> Path:
    members = [f"{folder}/{name}" for name in names] or [m for m in artifact.files if m.startswith(f"{folder}/")]
    for member in members:
        artifact.file(member)
    return artifact.path / folder
