"""OpenVINO on the CPU: IR files (.xml with .bin), read from memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends._common import agree, cannot_open, installed, misfit, one_each, only, version

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec

TARGET = "openvino"
DISTRIBUTION = "openvino"


def available() -> bool:
    """Whether the package is installed."""
    return installed("openvino")


def open(files: Mapping[str, bytes], input: TensorSpec, output: TensorSpec, threads: int) -> OpenvinoBackend:
    """Compile for the CPU. Float arithmetic stays float32: some CPUs would otherwise fall to bfloat16 or float16."""
    xml, weights = only(files, ".xml"), only(files, ".bin")
    try:
        import openvino

        core = openvino.Core()
        model = core.read_model(xml, weights)
        one_each(len(model.inputs), len(model.outputs))
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        return OpenvinoBackend(openvino.Tensor, core.compile_model(model, "CPU", settings), input, output)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise cannot_open("openvino", error) from error


class OpenvinoBackend:
    """A compiled model with one request, whose tensors are numpy arrays: half the time of calling the model itself."""

    name = "openvino"

    def __init__(self, tensor: Any, compiled: Any, input: TensorSpec, output: TensorSpec) -> None:
        for what, spec, port in (("input", input, compiled.inputs[0]), ("output", output, compiled.outputs[0])):
            agree(what, spec, list(port.shape), np.dtype(port.element_type.to_dtype()).name)
        self._shape = input.shape
        self._source = np.zeros(input.shape, dtype=input.dtype)
        self._result = np.zeros(output.shape, dtype=output.dtype)
        self._request = compiled.create_infer_request()
        self._request.set_input_tensor(tensor(self._source, shared_memory=True))
        self._request.set_output_tensor(tensor(self._result, shared_memory=True))

    @property
    def version(self) -> str:
        """Version of the distribution."""
        return version(DISTRIBUTION)

    def run(self, x: np.ndarray) -> np.ndarray:
        """Scores (1, classes) float32 for one input."""
        if x.shape != self._shape or x.dtype != np.float32:
            raise misfit(x, self._shape)
        self._source[...] = x
        self._request.infer(share_outputs=True)
        return self._result.astype(np.float32)
