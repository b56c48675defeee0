"""The TFLite interpreter's calls, the same in every package that carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends._common import agree, misfit, one_each, version
from edgekit.runner.errors import BackendError

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec

Convert = Callable[[np.ndarray], np.ndarray]


class TfliteBackend:
    """A model on a TFLite interpreter. Integer tensors are converted by their own scale and zero point."""

    def __init__(self, name: str, distribution: str, interpreter: Any, input: TensorSpec, output: TensorSpec) -> None:
        self.name = name
        self._distribution = distribution
        interpreter.allocate_tensors()
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
        one_each(len(inputs), len(outputs))
        for what, spec, detail in (("input", input, inputs[0]), ("output", output, outputs[0])):
            agree(what, spec, [int(side) for side in detail["shape"]], np.dtype(detail["dtype"]).name)
        self._interpreter = interpreter
        self._shape = input.shape
        self._index = (inputs[0]["index"], outputs[0]["index"])
        self._quantize = _quantizer(inputs[0])
        self._dequantize = _dequantizer(outputs[0])

    @property
    def version(self) -> str:
        """Version of the interpreter's distribution."""
        return version(self._distribution)

    def run(self, x: np.ndarray) -> np.ndarray:
        """Scores (1, classes) float32 for one input."""
        if x.shape != self._shape or x.dtype != np.float32:
            raise misfit(x, self._shape)
        interpreter, (source, result) = self._interpreter, self._index
        interpreter.set_tensor(source, x if self._quantize is None else self._quantize(x))
        interpreter.invoke()
        scores: np.ndarray = interpreter.get_tensor(result)
        return scores if self._dequantize is None else self._dequantize(scores)


def _parameters(detail: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point of a tensor, float32 of no dimension (numpy's fastest operand); None where it is float32."""
    dtype = np.dtype(detail["dtype"])
    if dtype == np.float32:
        return None
    scales, zero_points = (detail["quantization_parameters"][key] for key in ("scales", "zero_points"))
    if dtype.kind not in "iu" or len(scales) != 1:
        raise BackendError(
            f"tensor {detail['name']}: {dtype.name} with {len(scales)} scales; use float32, or integers with one scale"
        )
    return np.array(scales[0], dtype=np.float32), np.array(zero_points[0], dtype=np.float32)


def _quantizer(detail: Any) -> Convert | None:
    parameters = _parameters(detail)
    if parameters is None:
        return None
    scale, zero_point = parameters
    dtype = np.dtype(detail["dtype"])
    lowest, highest = (np.array(limit, dtype=np.float32) for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    real = np.empty(detail["shape"], dtype=np.float32)

    def quantize(x: np.ndarray) -> np.ndarray:
        np.divide(x, scale, real)
        np.rint(real, real)
        np.add(real, zero_point, real)
        np.maximum(real, lowest, out=real)
        np.minimum(real, highest, out=real)
        return real.astype(dtype)

    return quantize


def _dequantizer(detail: Any) -> Convert | None:
    parameters = _parameters(detail)
    if parameters is None:
        return None
    scale, zero_point = parameters

    def dequantize(scores: np.ndarray) -> np.ndarray:
        real = scores.astype(np.float32)
        real -= zero_point
        real *= scale
        return real

    return dequantize
