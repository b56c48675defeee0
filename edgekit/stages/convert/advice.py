"""What to do about a file that is outside its tolerance, by what the check saw of it and of its network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.targets import FEW_BITS, FURTHER, layers, model_file
from edgekit.targets.jobs import FLOAT

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
        return bool(layers.read(model_folder, [layer]))
    except ConversionError:  # a module without weights, or an operation in the network's own forward
        return False
