"""Plan which variants to convert, and record which are left out and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from edgekit.core.errors import ConversionError, StageError
from edgekit.core.schema.conversion import ConvertedVariant, NotOfferedVariant, VariantName
from edgekit.core.schema.variants import LeftOutVariant
from edgekit.models import store
from edgekit.stages.convert.config import ConvertConfig
from edgekit.targets import FOLD_PREPROCESS, SPARSE_WEIGHTS, model_file, precisions
from edgekit.targets.error_causes import ConversionFailure
from edgekit.targets.jobs import MINMAX, ConversionJob, ConversionStep, Method, Quantization, plain_method

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

SPEC = "model.json"
ORIGINS = {
    "baseline": ("profile", "model"),
    "student": ("distill", "model"),
    "pruned": ("prune", "model"),
    "sparse": ("prune", "sparse"),
}
DEFAULT_QUANTIZATION: dict[str, Any] = {
    "method": "ptq",
    "quantization": MINMAX.to_json(),
    "ptq_quantization": MINMAX.to_json(),
}
"""The int8 settings of a run without the quantize stage."""
TUNED_MODEL = "pruned"
"""The model that the quantize stage quantizes."""


def variant_name(model: str, precision: str, target: str) -> str:
    """Return the name of a variant, which is also the name of its folder."""
    return f"{model}-{precision}-{target}"


@dataclass(frozen=True)
class NetworkToConvert:
    """A saved network to convert.

    `quantization` says how int8 files are made. After QAT, they are made from the weights in `tuned`, and OpenVINO uses
    the learned ranges in `nncf`.
    """

    name: str
    folder: Path
    quantization: Quantization = MINMAX
    tuned: Path | None = None
    nncf: Path | None = None

    def step(self, precision: str, out: Path) -> ConversionStep:
        """Return the step that makes the variant of this precision."""
        if precision == "int8":
            if self.tuned:
                return ConversionStep(precision, "qat", self.tuned, out, self.nncf, self.quantization)
            method: Method = "mixed" if self.quantization.keep_float else "ptq"
            return ConversionStep(precision, method, self.folder, out, quantization=self.quantization)
        return ConversionStep(precision, plain_method(precision), self.folder, out)

    def jobs(self, config: ConvertConfig, calibration: Path, out: Path) -> list[ConversionJob]:
        """Return a job for each target. Its first step makes the float file that the other files are compared with."""
        jobs = []
        for target in config.targets:
            offered = model_file.offered_precisions(target, precisions(target), self.folder)
            requested = [precision for precision in offered if precision in config.precisions]
            steps = tuple(self.step(each, out / variant_name(self.name, each, target)) for each in requested)
            if config.fold_preprocess and target in FOLD_PREPROCESS:
                steps = tuple(replace(step, fold=True) for step in steps)
            if config.sparse_weights and target in SPARSE_WEIGHTS:
                steps = tuple(replace(step, sparse=True) for step in steps)
            jobs += [ConversionJob(self.name, target, calibration, steps)] if steps else []
        return jobs

    @property
    def source_name(self) -> str:
        """The name of the outputs with which float files are compared."""
        described = model_file.read(self.folder)
        return "torch-fp32" if described is None else described.source.file

    def not_offered(self, target: str, precision: str) -> str:
        """Return why this target does not offer the precision for this network; empty if it does."""
        described = model_file.read(self.folder)
        if described is not None and (reason := described.refusal(target)):
            return reason
        if precision not in precisions(target):
            return f"not offered by {target}"
        if (
            described is not None
            and not described.is_quantized
            and precision != model_file.FLOAT
            and described.float_only
        ):
            return described.float_only
        if precision not in model_file.offered_precisions(target, precisions(target), self.folder):
            return f"{self.source_name} is quantized already and is used unchanged"
        return ""


def distinct_networks(source: Artifact, models: Sequence[str]) -> tuple[list[NetworkToConvert], list[str]]:
    """Return the requested networks without duplicates, and a note for each that is left out.

    The digests of their files are verified. Raises ConversionError if none of the networks exists.
    """
    names_by_digests: dict[tuple[str, ...], str] = {}
    networks: list[NetworkToConvert] = []
    notes: list[str] = []
    quantized = source.find_ancestor("quantize")
    decision = (
        json.loads(quantized.file("decision.json").read_text(encoding="utf-8")) if quantized else DEFAULT_QUANTIZATION
    )
    chosen_quantization = Quantization.from_json(decision["quantization"])
    # after QAT or with mixed precision, `chosen_quantization` fits only the network that was quantized
    post_training = Quantization.from_json(decision["ptq_quantization"])
    tuned_origin = _digests(source, TUNED_MODEL)
    for name in models:
        key = _digests(source, name)
        if key is None:
            notes.append(f"{name}: left out, because stage {ORIGINS[name][0]!r} made no such network")
        elif key in names_by_digests:
            notes.append(f"{name}: left out, because it is the same network as {names_by_digests[key]}")
        else:
            names_by_digests[key] = name
            stage, folder = ORIGINS[name]
            saved = _verified_folder(source.ancestor(stage), folder)
            if key != tuned_origin:
                networks.append(NetworkToConvert(name, saved, post_training))
            elif quantized and decision["method"] == "qat":
                tuned, nncf = _verified_folder(quantized, "model"), _verified_folder(quantized, "nncf")
                networks.append(NetworkToConvert(name, saved, chosen_quantization, tuned, nncf))
            else:
                networks.append(NetworkToConvert(name, saved, chosen_quantization))
    if not networks:
        raise ConversionError(f"convert.models: got {list(models)}, and none of them was made: {'; '.join(notes)}")
    return networks, notes


def _digests(source: Artifact, name: str) -> tuple[str, ...] | None:
    """Return the digests of a network's files, or None if the stage made no such network."""
    stage, folder = ORIGINS[name]
    try:
        files = source.ancestor(stage).files
    except StageError:
        return None
    if f"{folder}/{SPEC}" not in files:
        return None
    return tuple(sha for name, sha in sorted(files.items()) if name.startswith(f"{folder}/"))


def _verified_folder(artifact: Artifact, folder: str) -> Path:
    for member in artifact.files:
        if member.startswith(f"{folder}/"):
            artifact.file(member)
    return artifact.path / folder


def left_out_row(model: str, target: str, precision: str, failure: ConversionFailure) -> LeftOutVariant:
    """Return the record of a variant that failed: the parts of the failure as fields, and all of them in `reason`."""
    return cast("LeftOutVariant", {**_names(model, target, precision), **failure.row()})


def is_converted(record: ConvertedVariant | LeftOutVariant) -> TypeGuard[ConvertedVariant]:
    """Return whether the variant was converted."""
    return "files" in record


def is_left_out(record: ConvertedVariant | LeftOutVariant) -> TypeGuard[LeftOutVariant]:
    """Return whether the variant was left out."""
    return not is_converted(record)


def not_offered(network: NetworkToConvert, config: ConvertConfig) -> Iterator[NotOfferedVariant]:
    """Yield a record for each requested precision that a target does not offer."""
    for target in config.targets:
        for precision in config.precisions:
            if reason := network.not_offered(target, precision):
                yield {**_names(network.name, target, precision), "reason": reason}


def without_reasons(rows: Iterable[LeftOutVariant | NotOfferedVariant]) -> list[VariantName]:
    """Return the records without their reasons."""
    return [_names(row["model"], row["target"], row["precision"]) for row in rows]


def describe_left_out(row: LeftOutVariant | NotOfferedVariant) -> str:
    """Describe the failure of a variant in one line."""
    return f"{row['name']} left out: {row['reason']}"


def fail_if_left_out(rows: Sequence[LeftOutVariant]) -> None:
    """Raise ConversionError for the first variant that was left out; used with `convert.strict`."""
    if rows:
        raise ConversionError(
            f"convert: {describe_left_out(rows[0])}; convert.strict is true: "
            "set it to false to continue without this variant"
        )


def empty_targets(
    config: ConvertConfig, variants: Iterable[ConvertedVariant], left_out: Sequence[LeftOutVariant | NotOfferedVariant]
) -> dict[str, str]:
    """Return the targets without any variant, and the reasons.

    Raises
    ------
    ConversionError
        No target has a variant, or the config names a target that has none.
    """
    targets_with_files = dict.fromkeys(row["target"] for row in variants)
    empty: dict[str, str] = {
        target: _describe_first(target, [row for row in left_out if row["target"] == target])
        for target in config.targets
        if target not in targets_with_files
    }
    if empty and (config.targets_named or not targets_with_files):
        advice = (
            f"; {', '.join(targets_with_files)} can be made: take {', '.join(empty)} out of targets"
            if targets_with_files
            else ""
        )
        raise ConversionError(f"convert: no variant for {', '.join(empty)}: {'; '.join(empty.values())}{advice}")
    return empty


def _describe_first(target: str, rows: Sequence[LeftOutVariant | NotOfferedVariant]) -> str:
    more = f" (and {len(rows) - 1} more of {target})" if len(rows) > 1 else ""
    return f"{describe_left_out(rows[0])}{more}"


def _names(model: str, target: str, precision: str) -> VariantName:
    name = variant_name(model, precision, target)
    return {"name": name, "model": model, "precision": precision, "target": target}


TRAINED_BY = {"baseline": "profile", "student": "distill", "pruned": "distill", "sparse": "distill"}
MERGED_KEY = "reparameterized"


def merged_rows(source: Artifact, networks: Sequence[NetworkToConvert]) -> Iterator[dict[str, Any]]:
    """Yield a record for each network whose branches were merged, with the change of its outputs and parameters."""
    for network in networks:
        if store.read_spec(network.folder).reparameterized:
            record = source.ancestor(TRAINED_BY[network.name]).metrics[MERGED_KEY]
            yield {"model": network.name, "from": "branches", "to": "merged", **record}
