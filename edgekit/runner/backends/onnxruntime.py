"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends._common import agree, cannot_open, installed, misfit, one_each, only, version

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec

TARGET = "onnx"
DISTRIBUTION = "onnxruntime"
DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}
QUIET = 3  # errors only: warnings about graph optimisation are no concern of a device's user


def available() -> bool:
    """Whether the package is installed."""
    return installed("onnxruntime")


def open(files: Mapping[str, bytes], input: TensorSpec, output: TensorSpec, threads: int) -> OnnxruntimeBackend:
    """Open the one .onnx file, from memory; external weight files are not read."""
    model = only(files, ".onnx")
    try:
        import onnxruntime
    except ImportError as error:
        raise cannot_open("onnxruntime", error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no base class but Exception
        raise cannot_open("onnxruntime", error) from error
    return OnnxruntimeBackend(session, input, output)


class OnnxruntimeBackend:
    """A session; every run gives a new array."""

    name = "onnxruntime"

    def __init__(self, session: Any, input: TensorSpec, output: TensorSpec) -> None:
        one_each(len(session.get_inputs()), len(session.get_outputs()))
        source, result = session.get_inputs()[0], session.get_outputs()[0]
        for what, spec, port in (("input", input, source), ("output", output, result)):
            agree(what, spec, port.shape, DTYPES.get(port.type, port.type))
        self._session = session
        self._input, self._outputs = source.name, [result.name]
        self._shape, self._dtype = input.shape, np.dtype(input.dtype)

    @property
    def version(self) -> str:
        """Version of the distribution."""
        return version(DISTRIBUTION)

    def run(self, x: np.ndarray) -> np.ndarray:
        """Scores (1, classes) float32 for one input."""
        if x.shape != self._shape or x.dtype != np.float32:
            raise misfit(x, self._shape)
        if self._dtype != np.float32:
            x = x.astype(self._dtype)
        scores: np.ndarray = self._session.run(self._outputs, {self._input: x})[0]
        return scores if scores.dtype == np.float32 else scores.astype(np.float32)
