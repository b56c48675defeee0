"""Compare each converted file of a network with the step before it, and leave out files outside their tolerance."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from edgekit.core.box_branches import describe_difference
from edgekit.core.errors import ConversionError
from edgekit.core.schema.conversion import BoundaryAgreement, ConvertedVariant, RedundantOperator
from edgekit.core.schema.variants import LeftOutVariant
from edgekit.stages.convert import numerics, plan
from edgekit.stages.convert.config import ConvertConfig
from edgekit.stages.convert.plan import NetworkToConvert
from edgekit.targets import CARRY_RANGES, LOW_BIT_PRECISIONS, OPTIONAL_PRECISIONS, evaluate, launch, layers, model_file
from edgekit.targets.error_causes import FALLBACK_ADVICE, NUMERICS, ConversionFailure
from edgekit.targets.jobs import FLOAT, ConversionJob, ConversionStep, ConvertedFiles
from edgekit.targets.locate import first_divergence

AMPLIFIES_ROUNDING = (
    "the network amplifies rounding until its answers depend on the machine that computes them, so no file can be "
    "compared with it: scale or normalise the values that it subtracts, divides or computes in a loop, or "
    "loosen convert.fp32_min_… and fp32_max_…"
)
RAISE_LAYER_LIMIT = "raise convert.int8_max_layer_loss_db"


class _Rejected(Exception):
    """A file that is outside its tolerance or could not be made."""

    def __init__(self, failure: ConversionFailure) -> None:
        super().__init__(failure.describe())
        self.failure = failure


@dataclass(frozen=True)
class BoundaryChecker:
    """Compares the files of one network with the step before them on the check samples.

    `inputs` holds the network inputs of the check samples, of shape (n, …). `locate` finds the first layer at which a
    file outside its tolerance diverges from the network.
    """

    network: NetworkToConvert
    inputs: np.ndarray
    config: ConvertConfig
    locate: Callable[[Path, str, Path, ConvertedFiles, np.ndarray, str], first_divergence.LocatedLayer] = (
        first_divergence.find_in_process
    )
    task: str = "classification"

    @cached_property
    def reference(self) -> np.ndarray:
        """The outputs of PyTorch in float32, of shape (n, …)."""
        return evaluate.torch_outputs(self.network.folder, self.inputs)

    @cached_property
    def tuned_reference(self) -> np.ndarray:
        """The outputs of PyTorch with the weights after QAT."""
        return evaluate.torch_outputs(self.network.tuned or self.network.folder, self.inputs)

    def records(
        self, job: ConversionJob, outcomes: list[launch.Outcome]
    ) -> Iterator[ConvertedVariant | LeftOutVariant]:
        """Check all files of a job; yield a record for each variant, with a `reason` for those that are left out.

        Variants made from a wrong float file are left out with it, because their looser tolerances would hide the
        fault.
        """
        float_model: tuple[str, np.ndarray] | None = None
        before: list[BoundaryAgreement] = []
        left_out: ConversionStep | None = None
        for step, outcome in zip(job.steps, outcomes, strict=True):
            try:
                if isinstance(outcome, launch.LeftOutStep):
                    raise _Rejected(outcome.failure)
                if left_out and step.depends_on(left_out):
                    raise _Rejected(launch.source_left_out(job.model, job.target))
                outputs = self._outputs(job, step, outcome.files)
                last = self._boundary(job, step, outcome.files, outputs, float_model)
            except _Rejected as rejected:
                shutil.rmtree(step.out, ignore_errors=True)
                left_out = step if step.precision == FLOAT else left_out
                yield plan.left_out_row(job.model, job.target, step.precision, rejected.failure)
                continue
            boundaries = [*before, last] if float_model and step.method != "qat" else [last]
            if step.precision == FLOAT:
                float_model, before = (last["to"], outputs), boundaries
            yield _record(job, step, outcome.files, boundaries)

    def _outputs(self, job: ConversionJob, step: ConversionStep, files: ConvertedFiles, batch: int = 1) -> np.ndarray:
        what = f"{job.model}, {job.target}, {step.precision}"
        try:
            return evaluate.file_outputs(what, job.target, step.out, files, self.inputs, batch)
        except ConversionError as error:
            raise _Rejected(ConversionFailure.from_cause("other", str(error), FALLBACK_ADVICE)) from None

    def _boundary(
        self,
        job: ConversionJob,
        step: ConversionStep,
        files: ConvertedFiles,
        outputs: np.ndarray,
        float_model: tuple[str, np.ndarray] | None,
    ) -> BoundaryAgreement:
        if step.method == "qat":
            source, reference = "torch-fp32 (tuned)", self.tuned_reference
        else:
            source, reference = float_model or (self.network.source_name, self.reference)
        result = f"{job.target}-{step.precision}"
        agreement = self._agreement(job, step, files, outputs, (source, result), reference)
        if files.free_batch:
            names = (source, f"{result}, two samples a call,")
            self._agreement(job, step, files, self._outputs(job, step, files, 2), names, reference)
        row = cast("BoundaryAgreement", {"from": source, "to": result, **asdict(agreement), "ok": True})
        if step.precision == FLOAT and (conditioning := self._explaining_conditioning(agreement, outputs, reference)):
            row["conditioning"] = (
                f"{result} differs from {source} by SNR {agreement.snr_db:.1f} dB, and so does the network from "
                f"itself ({conditioning.describe()}): it amplifies rounding, so answers differ between machines"
            )
        if step.precision == "int8" and step.method != "qat" and step.quantization.ranges == "minmax":
            row["layers_unseen"] = self._check_layer_losses(
                job, step, files, f"{self.network.name}: {source} → {result}"
            )
        return row

    def _agreement(
        self,
        job: ConversionJob,
        step: ConversionStep,
        files: ConvertedFiles,
        outputs: np.ndarray,
        names: tuple[str, str],
        reference: np.ndarray,
    ) -> numerics.Agreement:
        """Compare outputs with the reference, and reject a file outside its tolerance.

        `names` are the names of the reference and of the outputs.
        """
        source, result = names
        if outputs.shape != reference.shape:
            message = (
                f"{self.network.name}: {result} gives outputs of shape {outputs.shape}, {source} {reference.shape}"
            )
            raise _Rejected(
                ConversionFailure.from_cause(NUMERICS, message, f"{CONVERTER_FAULT}: drop this target, or report it")
            )
        agreement = numerics.compare(reference, outputs, self.task, self.inputs)
        faults = numerics.tolerance_faults(agreement, self.config.tolerance(step.precision), self.task)
        is_float = step.precision == FLOAT
        if faults and not (is_float and self._explaining_conditioning(agreement, outputs, reference)):
            divergence = self._locate_layer(job, step, files)
            message = (
                f"{self.network.name}: {source} → {result} is outside its tolerance on {len(outputs)} validation "
                f"samples: {'; '.join(faults)} (max |Δ| {agreement.max_abs:.3g}, cosine {agreement.cosine:.4g}); "
                f"{self._own_rounding() if is_float else self._lost_branch(files, outputs, reference)}"
                f"{divergence.message}"
            )
            raise _Rejected(
                ConversionFailure.from_cause(
                    NUMERICS, message, self._advice(step, outputs, reference, divergence.layer), divergence.layer
                )
            )
        return agreement

    @cached_property
    def _conditioning(self) -> numerics.Conditioning | None:
        return numerics.measure_conditioning(self.network.folder, self.inputs, self.reference, self.task)

    def _explaining_conditioning(
        self, agreement: numerics.Agreement, outputs: np.ndarray, reference: np.ndarray
    ) -> numerics.Conditioning | None:
        """Return how much the network amplifies rounding, if this explains why a float file exceeds its tolerance.

        Otherwise the result is None. This conditioning of the network is measured only if a file exceeds its tolerance,
        so that no time is spent on other networks.
        """
        tolerance = self.config.tolerance(FLOAT)
        if not numerics.tolerance_faults(agreement, tolerance, self.task) or not np.isfinite(outputs).all():
            return None
        conditioning = self._conditioning
        if (
            conditioning is None
            or not conditioning.is_conclusive
            or numerics.tolerance_faults(agreement, conditioning.tolerance(tolerance), self.task)
        ):
            return None
        return conditioning if conditioning.explains(reference, outputs, tolerance.min_snr_db) else None

    def _own_rounding(self) -> str:
        conditioning = self._conditioning
        return f"the network differs from itself by {conditioning.describe()}; " if conditioning else ""

    def _lost_branch(self, files: ConvertedFiles, outputs: np.ndarray, reference: np.ndarray) -> str:
        """Say whether the boxes or the scores of a detector with several outputs differ; empty for other files."""
        if self.task != "detection" or len(files.outputs) < 2 or not np.isfinite(outputs).all():
            return ""
        return f"{describe_difference(reference, outputs, self.inputs)}; "

    def _advice(self, step: ConversionStep, outputs: np.ndarray, reference: np.ndarray, layer: str) -> str:
        conditioning = self._conditioning if step.precision == FLOAT else None
        if conditioning is not None and not conditioning.is_conclusive:
            return AMPLIFIES_ROUNDING
        is_tuned = step.method == "qat"
        return advise(Divergence(step.model_folder, step.precision, reference, outputs, layer, is_tuned))

    def _check_layer_losses(self, job: ConversionJob, step: ConversionStep, files: ConvertedFiles, what: str) -> str:
        """Reject an int8 file in which a single layer loses more than `int8_max_layer_loss_db`.

        With min-max ranges every layer should lose little, so a large loss means a fault of the converter. If the
        layers cannot be examined, the file is not rejected, because its outputs agree. In this case, the result says
        why they cannot be examined; otherwise it is empty.
        """
        limit_db = self.config.int8_max_layer_loss_db
        try:
            divergence = first_divergence.find_divergence(
                step.model_folder, job.target, step.out, files, self.inputs, step.precision, limit_db
            )
        except Exception as error:  # interpreters raise all kinds of exceptions, and the file itself is valid
            return f"{type(error).__name__}: {error}"
        if divergence:
            message = (
                f"{what} is inside its tolerance, but one layer loses {divergence.loss_db:.0f} dB, at most "
                f"{limit_db:g} dB allowed: {divergence.describe()}"
            )
            advice = (
                f"{layer_advice(step.model_folder, divergence.layer)}, or, if that loss is intended, "
                f"{RAISE_LAYER_LIMIT}"
            )
            raise _Rejected(ConversionFailure.from_cause(NUMERICS, message, advice, divergence.layer))
        return ""

    def _locate_layer(
        self, job: ConversionJob, step: ConversionStep, files: ConvertedFiles
    ) -> first_divergence.LocatedLayer:
        if step.precision in OPTIONAL_PRECISIONS:
            return first_divergence.LocatedLayer("the layers of this optional precision were not examined")
        return self.locate(step.model_folder, job.target, step.out, files, self.inputs, step.precision)


def _record(
    job: ConversionJob, step: ConversionStep, files: ConvertedFiles, boundaries: list[BoundaryAgreement]
) -> ConvertedVariant:
    paths = [step.out / name for name in files.names]
    record: ConvertedVariant = {
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
        "debris": [cast("RedundantOperator", one.to_json()) for one in files.debris],
        "boundaries": boundaries,
    }
    if files.folding:
        record["folding"] = files.folding
    if files.sparse_weights:
        record["sparse_weights"] = files.sparse_weights
    if files.head is not None:
        record["head"] = files.head
    return record


def _set_by_target(job: ConversionJob, step: ConversionStep) -> bool:
    """Return whether the target itself determines the int8 ranges, as the step's quantization says.

    After QAT, some targets take the ranges that were learned in training instead.
    """
    return step.precision == "int8" and not (step.method == "qat" and job.target in CARRY_RANGES)


CONVERTER_FAULT = "the converter changed what the network computes"
FP16_TOO_COARSE = (
    "float16's 11 bits are too few for this network: leave fp16 out of convert.precisions, or loosen convert.fp16_min_…"
)
FP16_OVERFLOW = "values leave the range of float16: leave fp16 out of convert.precisions, or normalise the input"
LOOSEN_INT8 = "leave int8 out of convert.precisions, or loosen convert.int8_min_…"
INT8_STEP = 1 / 255
"""Resolution of int8, as a fraction of the range of all values."""
CONSTANT = 0.05
"""The outputs of a file count as constant if their variation is less than this fraction of that of the network's
outputs."""


@dataclass(frozen=True)
class Divergence:
    """A file outside its tolerance.

    `reference` and `outputs`, of shape (n, …), are the expected and the actual outputs. `layer` is the layer at which
    the file diverges, or empty if no single layer is the cause. `tuned` says whether the weights come from QAT.
    """

    model_folder: Path
    precision: str
    reference: np.ndarray
    outputs: np.ndarray
    layer: str = ""
    tuned: bool = False


def advise(divergence: Divergence) -> str:
    """Return one line of advice, which names only options that can help in this case."""
    if divergence.precision == FLOAT:
        measure = (
            f"replace {divergence.layer}, or drop this target" if divergence.layer else "drop this target, or report it"
        )
        return f"{CONVERTER_FAULT}: {measure}"
    if divergence.precision == "fp16":
        return FP16_TOO_COARSE if np.isfinite(divergence.outputs).all() else FP16_OVERFLOW
    if divergence.precision != "int8":
        options = (
            "further_min_…"
            if divergence.precision in OPTIONAL_PRECISIONS and divergence.precision not in LOW_BIT_PRECISIONS
            else "int8_min_…"
        )
        return f"leave {divergence.precision} out of convert.precisions, or loosen convert.{options}"
    return _int8_advice(divergence)


def layer_advice(model_folder: Path, layer: str) -> str:
    """Return advice for a layer that int8 harms. Only layers with weights can be kept in float."""
    if _has_weights(model_folder, layer):
        return f"let quantize keep {layer} in float (quantize.max_float_layers) or tune the network (QAT)"
    return f"replace {layer}, which has no weights and cannot be kept in float, or let quantize tune the network (QAT)"


def _int8_advice(divergence: Divergence) -> str:
    if _variation(divergence.reference) < INT8_STEP * np.ptp(divergence.reference):
        return (
            "the network's own outputs are nearly the same for all samples, and int8 cannot distinguish them: train it "
            "longer, or provide trained weights"
        )
    if divergence.tuned:
        return f"the weights come from QAT already: raise quantize.epochs, or set quantize.qat: false; {LOOSEN_INT8}"
    constant = _variation(divergence.outputs) < CONSTANT * _variation(divergence.reference)
    prefix = "the int8 file gives nearly the same outputs for all samples: " if constant else ""
    if divergence.layer:
        return f"{prefix}{layer_advice(divergence.model_folder, divergence.layer)}, {LOOSEN_INT8}"
    if model_file.read(divergence.model_folder):
        return f"{prefix}raise convert.calibration_samples, {LOOSEN_INT8}; QAT needs the network in PyTorch"
    return f"{prefix}let quantize tune the network (QAT), raise convert.calibration_samples, {LOOSEN_INT8}"


def _variation(outputs: np.ndarray) -> float:
    """Return how much outputs vary between samples: the median of the standard deviations of all output values."""
    return float(np.median(outputs.astype(np.float64).std(axis=0)))


def _has_weights(model_folder: Path, layer: str) -> bool:
    try:
        return bool(layers.read_layers(model_folder, [layer]))
    except ConversionError:  # a module without weights, or an operation in the network's own forward
        return False
