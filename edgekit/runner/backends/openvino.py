"""OpenVINO: IR files (.xml with .bin) and ONNX, read from memory.

TFLite files are left to the other interpreters. OpenVINO 2026.4 reads them from a path only. It refuses half-precision
files of litert-torch ("Chosen Builtin Option is not accessible"). It gives wrong outputs for MLPerf Tiny's int8 ResNet
(-4 for -80).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import telemetry
from edgekit.runner.backends._common import (
    Opened,
    agree,
    cannot_open,
    cast,
    check_ends,
    encoding,
    installed,
    join_with,
    only,
)

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import TensorSpec

TARGETS = ("openvino", "onnx")
DISTRIBUTION = "openvino"
PACKAGE = "openvino"


def available() -> bool:
    """Whether the package is installed."""
    return installed(PACKAGE)


def open(
    files: Mapping[str, bytes],
    input: TensorSpec,
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    batch: int = 1,
) -> OpenvinoBackend:
    """Compile for a device, as OpenVINO calls it."""
    telemetry.off()
    try:
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(_read(core, files, batch), device, _settings(threads, device))
        return OpenvinoBackend(openvino.Tensor, compiled, input, outputs, batch)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise cannot_open("openvino", error) from error


def compiled(files: Mapping[str, bytes], threads: int, device: str = "CPU") -> bytes:
    """The compiled model as this OpenVINO on this CPU can load it again, for `restore`."""
    import io

    telemetry.off()
    import openvino

    core = openvino.Core()
    stream = io.BytesIO()
    core.compile_model(_read(core, files), device, _settings(threads, device)).export_model(stream)
    return stream.getvalue()


def restore(
    blob: bytes, input: TensorSpec, outputs: Sequence[TensorSpec], threads: int, device: str = "CPU"
) -> OpenvinoBackend:
    """Open what `compiled` gave; BackendError where it is of another version or another machine."""
    telemetry.off()
    try:
        import io

        import openvino

        core = openvino.Core()
        model = core.import_model(io.BytesIO(blob), device, _settings(threads, device))
        return OpenvinoBackend(openvino.Tensor, model, input, outputs)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise cannot_open("openvino", error) from error


def _read(core: Any, files: Mapping[str, bytes], batch: int = 1) -> Any:
    is_onnx = any(name.endswith(".onnx") for name in files)
    model = (
        core.read_model(only(files, ".onnx"), b"")
        if is_onnx
        else core.read_model(only(files, ".xml"), only(files, ".bin"))
    )
    check_ends(len(model.inputs), 1)
    shape = model.inputs[0].partial_shape
    if len(shape) and (batch != 1 or shape[0].is_dynamic):
        shape[0] = batch
        model.reshape(shape)
    return model


def _shape(port: Any) -> list[int | None]:
    """A port's sides; None for one that is free."""
    return [side.get_length() if side.is_static else None for side in port.partial_shape]


def _settings(threads: int, device: str) -> dict[str, Any]:
    """Float arithmetic stays float32: some CPUs would otherwise fall to bfloat16 or float16."""
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if device == "CPU":
        settings.update({"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    return settings


class OpenvinoBackend(Opened):
    """A compiled model with one request, whose tensors are numpy arrays: half the time of calling the model itself."""

    def __init__(
        self, tensor: Any, compiled: Any, input: TensorSpec, outputs: Sequence[TensorSpec], batch: int = 1
    ) -> None:
        check_ends(len(compiled.inputs), len(compiled.outputs), len(outputs))
        ports = (("output", *pair) for pair in zip(outputs, compiled.outputs))
        for what, spec, port in (("input", input, compiled.inputs[0]), *ports):
            agree(what, spec, _shape(port), np.dtype(port.element_type.to_dtype()).name, batch)
        encode = encoding(input.dtype)
        decode = join_with([None if each.dtype == "float32" else cast(np.float32) for each in outputs])
        super().__init__("openvino", DISTRIBUTION, input, encode, decode, batch)
        self._source = np.zeros(self.shape, dtype=input.dtype)
        self._results = [np.zeros((batch, *each.shape[1:]), dtype=each.dtype) for each in outputs]
        self._result = self._results[0] if len(outputs) == 1 else None
        self._request = compiled.create_infer_request()
        self._request.set_input_tensor(tensor(self._source, shared_memory=True))
        for place, result in enumerate(self._results):
            self._request.set_output_tensor(place, tensor(result, shared_memory=True))

    def invoke(self, x: np.ndarray) -> Any:
        """See `Opened`."""
        self._source[...] = x
        self._request.infer(share_outputs=True)
        return [result.copy() for result in self._results] if self._result is None else self._result.copy()
