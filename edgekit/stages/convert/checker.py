"""Each file of a network held against the step before it; what leaves its tolerance is left out with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.core.schema.conversion import Agreement, ConvertedVariant, LeftBehind
from edgekit.core.schema.variants import LeftOut
from edgekit.stages.convert import numerics, plan
from edgekit.stages.convert.config import ConvertConfig
from edgekit.stages.convert.plan import Network
from edgekit.targets import CARRY_RANGES, FEW_BITS, FURTHER, evaluate, launch, layers, model_file
from edgekit.targets.error_causes import NUMERICS, OTHERWISE, Failure
from edgekit.targets.jobs import FLOAT, Files, Job, Step
from edgekit.targets.locate import first_divergence

AMPLIFIES = (
    "the network amplifies rounding until its answers depend on the machine that computes them, so no file can be held "
    "against it: scale or normalise what it subtracts, divides or iterates, or loosen convert.fp32_min_… and fp32_max_…"
)
RAISE = "raise convert.int8_max_layer_loss_db"


class _Rejected(Exception):
    """A file that may not ship."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.describe())
        self.failure = failure


@dataclass(frozen=True)
class Checker:
    """One network's outputs on the check samples, and what each boundary must keep.

    `locate` finds the first layer at which a file outside its tolerance diverges from the network.
    """

    network: Network
    inputs: np.ndarray
    config: ConvertConfig
    locate: Callable[[Path, str, Path, Files, np.ndarray, str], first_divergence.Located] = (
        first_divergence.find_in_process
    )
    task: str = "classification"

    @cached_property
    def reference(self) -> np.ndarray:
        """By PyTorch in float32, (n, …)."""
        return evaluate.torch_outputs(self.network.folder, self.inputs)

    @cached_property
    def tuned_reference(self) -> np.ndarray:
        """The same of the weights that QAT left."""
        return evaluate.torch_outputs(self.network.tuned or self.network.folder, self.inputs)

    def records(self, job: Job, outcomes: list[launch.Outcome]) -> Iterator[ConvertedVariant | LeftOut]:
        """Of one job's files, each boundary held against its tolerance; what is left out has a `reason` instead.

        What is made from a wrong float model is left out with it: the looser tolerances behind would hide the fault.
        """
        float_model: tuple[str, np.ndarray] | None = None
        before: list[Agreement] = []
        lost: Step | None = None
        for step, outcome in zip(job.steps, outcomes, strict=True):
            try:
                if isinstance(outcome, launch.LeftOut):
                    raise _Rejected(outcome.failure)
                if lost and step.depends_on(lost):
                    raise _Rejected(launch.source_left_out(job.model, job.target))
                outputs = self._outputs(job, step, outcome.files)
                last = self._boundary(job, step, outcome.files, outputs, float_model)
            except _Rejected as wrong:
                shutil.rmtree(step.out, ignore_errors=True)
                lost = step if step.precision == FLOAT else lost
                yield plan.left_out_row(job.model, job.target, step.precision, wrong.failure)
                continue
            boundaries = [*before, last] if float_model and step.method != "qat" else [last]
            if step.precision == FLOAT:
                float_model, before = (last["to"], outputs), boundaries
            yield _record(job, step, outcome.files, boundaries)

    def _outputs(self, job: Job, step: Step, files: Files, batch: int = 1) -> np.ndarray:
        what = f"{job.model}, {job.target}, {step.precision}"
        try:
            return evaluate.file_outputs(what, job.target, step.out, files, self.inputs, batch)
        except ConversionError as error:
            raise _Rejected(Failure.of("other", str(error), OTHERWISE)) from None

    def _boundary(
        self, job: Job, step: Step, files: Files, outputs: np.ndarray, float_model: tuple[str, np.ndarray] | None
    ) -> Agreement:
        if step.method == "qat":
            source, reference = "torch-fp32 (tuned)", self.tuned_reference
        else:
            source, reference = float_model or (self.network.source_name, self.reference)
        result = f"{job.target}-{step.precision}"
        agreement = self._agreement(job, step, files, outputs, (source, result), reference)
        if files.free_batch:
            ends = (source, f"{result}, two samples a call,")
            self._agreement(job, step, files, self._outputs(job, step, files, 2), ends, reference)
        row = cast("Agreement", {"from": source, "to": result, **asdict(agreement), "ok": True})
        if step.precision == FLOAT and (own := self._explaining(agreement, outputs, reference)):
            row["conditioning"] = (
                f"{result} differs from {source} by SNR {agreement.snr_db:.1f} dB, and so does the network from "
                f"itself ({own.describe()}): it amplifies rounding, so answers differ between machines"
            )
        if step.precision == "int8" and step.method != "qat" and step.quantization.ranges == "minmax":
            row["layers_unseen"] = self._no_steep_layer(job, step, files, f"{self.network.name}: {source} → {result}")
        return row

    def _agreement(
        self, job: Job, step: Step, files: Files, outputs: np.ndarray, ends: tuple[str, str], reference: np.ndarray
    ) -> numerics.Agreement:
        """How near the outputs are; a file outside its tolerance is rejected. `ends` are the boundary's two names."""
        source, result = ends
        if outputs.shape != reference.shape:
            said = f"{self.network.name}: {result} gives outputs of shape {outputs.shape}, {source} {reference.shape}"
            raise _Rejected(Failure.of(NUMERICS, said, f"{CONVERTER}: drop this target, or report it"))
        agreement = numerics.compare(reference, outputs, self.task, self.inputs)
        faults = numerics.faults(agreement, self.config.tolerance(step.precision), self.task)
        is_float = step.precision == FLOAT
        if faults and not (is_float and self._explaining(agreement, outputs, reference)):
            parted = self._located(job, step, files)
            said = (
                f"{self.network.name}: {source} → {result} is outside its tolerance on {len(outputs)} validation "
                f"samples: {'; '.join(faults)} (max |Δ| {agreement.max_abs:.3g}, cosine {agreement.cosine:.4g}); "
                f"{self._own_rounding() if is_float else ''}{parted.message}"
            )
            raise _Rejected(
                Failure.of(NUMERICS, said, self._advice(step, outputs, reference, parted.layer), parted.layer)
            )
        return agreement

    @cached_property
    def _conditioning(self) -> numerics.Conditioning | None:
        return numerics.measure_conditioning(self.network.folder, self.inputs, self.reference, self.task)

    def _explaining(
        self, agreement: numerics.Agreement, outputs: np.ndarray, reference: np.ndarray
    ) -> numerics.Conditioning | None:
        """The network's own conditioning, where a float file leaves its tolerance and differs no more than that.

        It is measured only then, so that other networks take no longer.
        """
        asked = self.config.tolerance(FLOAT)
        if not numerics.faults(agreement, asked, self.task) or not np.isfinite(outputs).all():
            return None
        own = self._conditioning
        if own is None or not own.is_measure or numerics.faults(agreement, own.tolerance(asked), self.task):
            return None
        return own if own.explains(reference, outputs, asked.min_snr_db) else None

    def _own_rounding(self) -> str:
        own = self._conditioning
        return f"the network differs from itself by {own.describe()}; " if own else ""

    def _advice(self, step: Step, outputs: np.ndarray, reference: np.ndarray, layer: str) -> str:
        own = self._conditioning if step.precision == FLOAT else None
        if own is not None and not own.is_measure:
            return AMPLIFIES
        is_tuned = step.method == "qat"
        return advice(Evidence(step.model_folder, step.precision, reference, outputs, layer, is_tuned))

    def _no_steep_layer(self, job: Job, step: Step, files: Files, what: str) -> str:
        """Ranges that hold all that the samples show cost every layer little; one that loses much was made wrongly.

        Returns why the layers could not be looked at, or nothing: the outputs, which ship, agree in any case.
        """
        limit_db = self.config.int8_max_layer_loss_db
        try:
            found = first_divergence.divergence(
                step.model_folder, job.target, step.out, files, self.inputs, step.precision, limit_db
            )
        except Exception as error:  # interpreters' errors share no class, and a comparison must not end what is sound
            return f"{type(error).__name__}: {error}"
        if found:
            said = (
                f"{what} is inside its tolerance, but one layer loses {found.loss_db:.0f} dB, at most {limit_db:g} dB "
                f"asked: {found.describe()}"
            )
            instead = f"{of_a_layer(step.model_folder, found.layer)}, or, where that loss is meant, {RAISE}"
            raise _Rejected(Failure.of(NUMERICS, said, instead, found.layer))
        return ""

    def _located(self, job: Job, step: Step, files: Files) -> first_divergence.Located:
        if step.precision in FURTHER:
            return first_divergence.Located("a candidate, whose layers were not examined")
        return self.locate(step.model_folder, job.target, step.out, files, self.inputs, step.precision)


def _record(job: Job, step: Step, files: Files, boundaries: list[Agreement]) -> ConvertedVariant:
    paths = [step.out / name for name in files.names]
    found: ConvertedVariant = {
        "name": step.out.name,
        "model": job.model,
        "precision": step.precision,
        "method": step.method,
        "quantization": step.quantization.to_json() if _set_by_target(job, step) else None,
        "target": job.target,
        "files": [f"{step.out.name}/{name}" for name in files.names],
        "bytes": sum(path.stat().st_size for path in paths),
        "inputs": [asdict(each) for each in files.inputs],
        "outputs": [asdict(each) for each in files.outputs],
        "float_ops": list(files.float_ops),
        "not_offered": list(files.not_offered),
        "debris": [cast("LeftBehind", one.to_json()) for one in files.debris],
        "boundaries": boundaries,
    }
    if files.folding:
        found["folding"] = files.folding
    if files.sparse_weights:
        found["sparse_weights"] = files.sparse_weights
    return found


def _set_by_target(job: Job, step: Step) -> bool:
    """Whether the target itself sets the ranges of int8 by the step's quantization."""
    return step.precision == "int8" and not (step.method == "qat" and job.target in CARRY_RANGES)


CONVERTER = "the converter changed what the network computes"
FEW = (
    "float16's 11 bits are too few for this network: leave fp16 out of convert.precisions, or loosen convert.fp16_min_…"
)
OVERFLOW = "values leave the range of float16: leave fp16 out of convert.precisions, or normalise the input"
LOOSEN = "leave int8 out of convert.precisions, or loosen convert.int8_min_…"
STEP = 1 / 255
"""Of the range of all values: what int8 cannot tell apart."""
CONSTANT = 0.05
"""Share of the network's own variation below which a file answers all samples alike."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a file outside its tolerance.

    `layer` is where it diverges, empty where no single one does; `tuned` says that QAT set its weights. `reference` and
    `outputs` (n, …) are what was expected and what came.
    """

    model_folder: Path
    precision: str
    reference: np.ndarray
    outputs: np.ndarray
    layer: str = ""
    tuned: bool = False


def advice(seen: Evidence) -> str:
    """One line, which names only options that can change what was seen."""
    if seen.precision == FLOAT:
        instead = f"replace {seen.layer}, or drop this target" if seen.layer else "drop this target, or report it"
        return f"{CONVERTER}: {instead}"
    if seen.precision == "fp16":
        return FEW if np.isfinite(seen.outputs).all() else OVERFLOW
    if seen.precision != "int8":
        options = "further_min_…" if seen.precision in FURTHER and seen.precision not in FEW_BITS else "int8_min_…"
        return f"leave {seen.precision} out of convert.precisions, or loosen convert.{options}"
    return _int8(seen)


def of_a_layer(model_folder: Path, layer: str) -> str:
    """What helps where int8 loses much in one layer: only one with weights of its own can be kept in float."""
    if _has_weights(model_folder, layer):
        return f"let quantize keep {layer} in float (quantize.max_float_layers) or tune the network (QAT)"
    return f"replace {layer}, which has no weights and cannot be kept in float, or let quantize tune the network (QAT)"


def _int8(seen: Evidence) -> str:
    if _variation(seen.reference) < STEP * np.ptp(seen.reference):
        return (
            "the network itself answers all samples nearly alike, and int8 cannot tell them apart: train it longer, or "
            "give weights that were trained"
        )
    if seen.tuned:
        return f"QAT is in it already: raise quantize.epochs, or set quantize.qat: false; {LOOSEN}"
    constant = _variation(seen.outputs) < CONSTANT * _variation(seen.reference)
    said = "the int8 file answers all samples alike: " if constant else ""
    if seen.layer:
        return f"{said}{of_a_layer(seen.model_folder, seen.layer)}, {LOOSEN}"
    if model_file.read(seen.model_folder):
        return f"{said}raise convert.calibration_samples, {LOOSEN}; QAT needs the network in PyTorch"
    return f"{said}let quantize tune the network (QAT), raise convert.calibration_samples, {LOOSEN}"


def _variation(outputs: np.ndarray) -> float:
    """By how much the answers to the samples differ from their mean, at the median of the values."""
    return float(np.median(outputs.astype(np.float64).std(axis=0)))


def _has_weights(model_folder: Path, layer: str) -> bool:
    try:
        return bool(layers.read_layers(model_folder, [layer]))
    except ConversionError:  # a module without weights, or an operation in the network's own forward
        return False
