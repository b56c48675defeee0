"""Which variants the stage is to make, and which are left out and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from edgekit.core.errors import ConversionError, StageError
from edgekit.core.schema.conversion import ConvertedVariant, Named, NotOffered
from edgekit.core.schema.variants import LeftOut
from edgekit.models import store
from edgekit.stages.convert.config import ConvertConfig
from edgekit.targets import FOLD_PREPROCESS, SPARSE_WEIGHTS, model_file, precisions
from edgekit.targets.error_causes import Failure
from edgekit.targets.jobs import MINMAX, Job, Method, Quantization, Step, plain_method

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

SPEC = "model.json"
ORIGINS = {
    "baseline": ("profile", "model"),
    "student": ("distill", "model"),
    "pruned": ("prune", "model"),
    "sparse": ("prune", "sparse"),
}
UNTRAINED: dict[str, Any] = {"method": "ptq", "quantization": MINMAX.to_json(), "ptq_quantization": MINMAX.to_json()}
"""The int8 settings of a run that trains nothing."""
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

    def jobs(self, config: ConvertConfig, calibration: Path, out: Path) -> list[Job]:
        """One for each target, the float model first: the others are compared with it."""
        jobs = []
        for target in config.targets:
            offered = model_file.offered(target, precisions(target), self.folder)
            wanted = [precision for precision in offered if precision in config.precisions]
            steps = tuple(self.step(each, out / variant_name(self.name, each, target)) for each in wanted)
            if config.fold_preprocess and target in FOLD_PREPROCESS:
                steps = tuple(replace(step, fold=True) for step in steps)
            if config.sparse_weights and target in SPARSE_WEIGHTS:
                steps = tuple(replace(step, sparse=True) for step in steps)
            jobs += [Job(self.name, target, calibration, steps)] if steps else []
        return jobs

    @property
    def source_name(self) -> str:
        """What the first boundary starts from."""
        found = model_file.read(self.folder)
        return "torch-fp32" if found is None else found.source.file

    def not_offered(self, target: str, precision: str) -> str:
        """Why this target has not that precision of this network; empty where it has."""
        found = model_file.read(self.folder)
        if found is not None and (reason := found.refusal(target)):
            return reason
        if precision not in precisions(target):
            return f"not offered by {target}"
        if found is not None and not found.is_quantized and precision != model_file.FLOAT and found.float_only:
            return found.float_only
        if precision not in model_file.offered(target, precisions(target), self.folder):
            return f"{self.source_name} is quantized already and taken as it is"
        return ""


def networks(source: Artifact, wanted: Sequence[str]) -> tuple[list[Network], list[str]]:
    """Networks that differ from one another, and a note for each that was left out. Members are digest-checked."""
    found: dict[tuple[str, ...], str] = {}
    kept: list[Network] = []
    notes: list[str] = []
    quantized = source.made_by("quantize")
    decision = json.loads(quantized.file("decision.json").read_text(encoding="utf-8")) if quantized else UNTRAINED
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
            saved = _checked(source.ancestor(stage), folder)
            if key != tuned_origin:
                kept.append(Network(name, saved, post_training))
            elif quantized and decision["method"] == "qat":
                tuned, nncf = _checked(quantized, "model"), _checked(quantized, "nncf")
                kept.append(Network(name, saved, chosen, tuned, nncf))
            else:
                kept.append(Network(name, saved, chosen))
    if not kept:
        raise ConversionError(f"convert.models: got {list(wanted)}, and none of them was made: {'; '.join(notes)}")
    return kept, notes


def _key(source: Artifact, name: str) -> tuple[str, ...] | None:
    """Digests of a network's files; None where the stage made none."""
    stage, folder = ORIGINS[name]
    try:
        files = source.ancestor(stage).files
    except StageError:
        return None
    if f"{folder}/{SPEC}" not in files:
        return None
    return tuple(sha for name, sha in sorted(files.items()) if name.startswith(f"{folder}/"))


def _checked(artifact: Artifact, folder: str) -> Path:
    for member in artifact.files:
        if member.startswith(f"{folder}/"):
            artifact.file(member)
    return artifact.path / folder


def left_out_row(model: str, target: str, precision: str, failure: Failure) -> LeftOut:
    """A variant that came to nothing: kind, operator, layer, place, cause and advice, and all of it in `reason`."""
    return cast("LeftOut", {**_names(model, target, precision), **failure.row()})


def is_made(record: ConvertedVariant | LeftOut) -> TypeGuard[ConvertedVariant]:
    """Whether it became a file."""
    return "files" in record


def is_lost(record: ConvertedVariant | LeftOut) -> TypeGuard[LeftOut]:
    """Whether it came to nothing."""
    return not is_made(record)


def not_offered(network: Network, config: ConvertConfig) -> Iterator[NotOffered]:
    """What the config asks for and the target does not have, a row each."""
    for target in config.targets:
        for precision in config.precisions:
            if reason := network.not_offered(target, precision):
                yield {**_names(network.name, target, precision), "reason": reason}


def without_reasons(rows: Iterable[LeftOut | NotOffered]) -> list[Named]:
    """The rows without their reasons."""
    return [_names(row["model"], row["target"], row["precision"]) for row in rows]


def describe_left_out(row: LeftOut | NotOffered) -> str:
    """The failure of one variant in one line."""
    return f"{row['name']} left out: {row['reason']}"


def refuse_any(rows: Sequence[LeftOut]) -> None:
    """ConversionError for the first of what `convert.strict` does not let go."""
    if rows:
        raise ConversionError(
            f"convert: {describe_left_out(rows[0])}; convert.strict is true: "
            "set it to false, and the run goes on without it"
        )


def empty_targets(
    config: ConvertConfig, made: Iterable[ConvertedVariant], lost: Sequence[LeftOut | NotOffered]
) -> dict[str, str]:
    """Find the targets that end without any variant, and why.

    Raises
    ------
    ConversionError
        There is no variant at all, or the config names the target.
    """
    filled = dict.fromkeys(row["target"] for row in made)
    empty: dict[str, str] = {
        target: _first(target, [row for row in lost if row["target"] == target])
        for target in config.targets
        if target not in filled
    }
    if empty and (config.targets_named or not filled):
        instead = f"; {', '.join(filled)} can be made: take {', '.join(empty)} out of targets" if filled else ""
        raise ConversionError(f"convert: no variant for {', '.join(empty)}: {'; '.join(empty.values())}{instead}")
    return empty


def _first(target: str, rows: Sequence[LeftOut | NotOffered]) -> str:
    more = f" (and {len(rows) - 1} more of {target})" if len(rows) > 1 else ""
    return f"{describe_left_out(rows[0])}{more}"


def _names(model: str, target: str, precision: str) -> Named:
    name = variant_name(model, precision, target)
    return {"name": name, "model": model, "precision": precision, "target": target}


TRAINED_BY = {"baseline": "profile", "student": "distill", "pruned": "distill", "sparse": "distill"}
MERGED_KEY = "reparameterized"


def merged_rows(source: Artifact, networks: Sequence[Network]) -> Iterator[dict[str, Any]]:
    """A row for each network that was merged: how far its outputs moved then, and its parameters before and after."""
    for network in networks:
        if store.read_spec(network.folder).reparameterized:
            found = source.ancestor(TRAINED_BY[network.name]).metrics[MERGED_KEY]
            yield {"model": network.name, "from": "branches", "to": "merged", **found}
