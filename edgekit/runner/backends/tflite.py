"""The TFLite interpreter, whose API is the same in every package that contains it.

The packages are ai-edge-litert, Google's current one; tflite-runtime 2.14, the last release, for devices with Python
3.11 or older and NumPy 1; and tensorflow, for machines that have it anyway, although its import takes seconds.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends.base import (
    BaseBackend,
    Convert,
    check_state_tensors,
    check_tensor,
    closed_model_file,
    input_converter,
    match_tensors,
    open_error,
    output_decoder,
    require_cpu,
)
from edgekit.runner.errors import BackendError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

UNSUPPORTED_TYPE_MESSAGE = "== kTfLiteInt8"
"""Part of the error of a kernel that cannot read 4-bit weights (tflite-runtime 2.14, ai-edge-litert 1.0)."""


def open(
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    batch: int = 1,
    states: Sequence[StateSpec] = (),
    name: str = "litert",
) -> TfliteBackend:
    """Open the one .tflite file from memory."""
    require_cpu(name, device)
    model = closed_model_file(files, ".tflite", name)
    try:
        interpreter = CLASSES[name]()(model_content=model, num_threads=threads)
        return TfliteBackend(name, interpreter, inputs, outputs, batch, states)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        if UNSUPPORTED_TYPE_MESSAGE in str(error):
            raise BackendError(
                f"{name} has no kernel for the types of this model's numbers, such as 4-bit weights; "
                f"use ai-edge-litert 2.0 or newer: {sys.executable} -m pip install 'ai-edge-litert>=2.0'"
            ) from error
        raise open_error(name, error) from error


def _litert() -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter


def _tflite_runtime() -> Any:
    if not np.__version__.startswith("1."):  # it can be imported, but crashes when it opens the model
        raise BackendError(
            f"tflite_runtime was built for numpy 1, but this is numpy {np.__version__}; "
            "run: pip install 'numpy<2', or where your Python has it: pip install ai-edge-litert"
        )
    from tflite_runtime.interpreter import Interpreter

    return Interpreter


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # only warnings and errors, without messages about GPUs
    from tensorflow import lite

    def interpreter(**options: Any) -> Any:
        with warnings.catch_warnings():  # TensorFlow announces on every start that ai-edge-litert replaces it
            warnings.simplefilter("ignore")
            return lite.Interpreter(**options)

    return interpreter


CLASSES: dict[str, Callable[[], Any]] = {
    "litert": _litert,
    "tflite_runtime": _tflite_runtime,
    "tensorflow": _tensorflow,
}
"""For each interpreter, the function that imports its class."""


class TfliteBackend(BaseBackend):
    """A model on a TFLite interpreter. Integer tensors are converted by their own scale and zero point."""

    def __init__(
        self,
        name: str,
        interpreter: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        batch: int = 1,
        states: Sequence[StateSpec] = (),
    ) -> None:
        if batch != 1:  # before the first allocation, which assigns operators to kernels
            _resize(interpreter, batch)
        interpreter.allocate_tensors()
        sides = interpreter.get_input_details(), interpreter.get_output_details()
        matched = match_tensors([[{each["name"]} for each in details] for details in sides], inputs, outputs, states)
        check_state_tensors(states, matched, [[_facts(each) for each in details] for details in sides])
        sources, results = ([side[position] for position in positions] for side, positions in zip(sides, matched[:2]))
        for what, specs, details in (("input", inputs, sources), ("output", outputs, results)):
            for spec, detail in zip(specs, details):
                check_tensor(what, spec, *_facts(detail), batch)
        encodes = [_quantizer(each) for each in sources]
        decode = output_decoder([_dequantizer(each) for each in results], outputs)
        super().__init__(name, inputs, encodes, decode, batch, states)
        self._set, self._invoke, self._get = interpreter.set_tensor, interpreter.invoke, interpreter.get_tensor
        self._sources, self._results = ([detail["index"] for detail in each] for each in (sources, results))
        self._source = self._sources[0] if len(sources) == 1 else None
        self._state_tensors = [
            (sides[0][before]["index"], sides[1][after]["index"]) for before, after in matched.states
        ]
        self._result = self._results[0] if len(results) == 1 else None
        self._is_plain = self._source is not None and self._result is not None and not states

    def invoke(self, x: np.ndarray) -> Any:
        """See `BaseBackend`."""
        if self._is_plain:
            self._set(self._source, x)
            self._invoke()
            return self._get(self._result)
        if self._state_tensors:
            return self.step(x, self.zeros())[0]
        self._feed(x)
        self._invoke()
        return self._outputs() if self._result is None else self._get(self._result)

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """See `BaseBackend`."""
        for (before, _), state in zip(self._state_tensors, states):
            self._set(before, state)
        self._feed(x)
        self._invoke()
        y = self._outputs()
        return y if self._result is None else y[0], [self._get(after) for _, after in self._state_tensors]

    def _feed(self, x: np.ndarray) -> None:
        if self._source is not None:
            self._set(self._source, x)
            return
        for position, tensor in zip(self._sources, self.tensors(x)):
            self._set(position, tensor)

    def _outputs(self) -> list[np.ndarray]:
        return [self._get(result) for result in self._results]


def _facts(detail: Any) -> tuple[list[int], str]:
    """Return a tensor's shape and dtype."""
    return [int(side) for side in detail["shape"]], np.dtype(detail["dtype"]).name


def _resize(interpreter: Any, batch: int) -> None:
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], [batch, *(int(side) for side in detail["shape"][1:])])


def _parameters(detail: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a tensor's scale and zero point, or None if it is float32.

    They are 0-d float32 arrays, which are NumPy's fastest operands.
    """
    dtype = np.dtype(detail["dtype"])
    if dtype == np.float32:
        return None
    scales, zero_points = (detail["quantization_parameters"][key] for key in ("scales", "zero_points"))
    if dtype.kind not in "iu" or len(scales) != 1:
        raise BackendError(
            f"tensor {detail['name']}: {dtype.name} with {len(scales)} scales; use float32, or integers with one scale"
        )
    return np.array(scales[0], dtype=np.float32), np.array(zero_points[0], dtype=np.float32)


def _quantizer(detail: Any) -> Convert:
    if np.dtype(detail["dtype"]).kind in "iu" and not len(detail["quantization_parameters"]["scales"]):
        return input_converter(
            np.dtype(detail["dtype"]).name
        )  # plain integers: token IDs, or a model that scales its input itself
    parameters = _parameters(detail)
    if parameters is None:
        return None
    scale, zero_point = parameters
    dtype = np.dtype(detail["dtype"])
    lowest, highest = (np.array(limit, dtype=np.float32) for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))

    def quantize(x: np.ndarray) -> np.ndarray:
        real = np.divide(x, scale)
        np.rint(real, real)
        np.add(real, zero_point, real)
        np.maximum(real, lowest, out=real)
        np.minimum(real, highest, out=real)
        return real.astype(dtype)

    return quantize


def _dequantizer(detail: Any) -> Convert:
    """Return the conversion to float32, or None if there is nothing to convert.

    8-bit integers are looked up in a table of all 256 values; wider integers are computed.
    """
    parameters = _parameters(detail)
    if parameters is None:
        return None
    scale, zero_point = parameters
    dtype = np.dtype(detail["dtype"])
    if dtype.itemsize > 1:
        return lambda y: (y.astype(np.float32) - zero_point) * scale
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    table = (values - zero_point) * scale
    return table.take  # negative integers index from the end, where their values are
