"""OpenVINO: IR files (.xml with .bin) and ONNX, read from memory.

TFLite files are left to the other interpreters, because OpenVINO 2026.4 reads them only from a path, refuses
half-precision files of litert-torch ("Chosen Builtin Option is not accessible"), and gives wrong outputs for MLPerf
Tiny's int8 ResNet (-4 for -80).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import telemetry
from edgekit.runner.backends import byte_inputs
from edgekit.runner.backends.base import (
    BaseBackend,
    cast_to,
    check_state_tensors,
    check_tensor,
    closed_model_file,
    copy_input,
    input_converter,
    match_inputs,
    match_tensors,
    open_error,
    output_decoder,
    single_file,
)

if TYPE_CHECKING:
    from edgekit.runner.backends.base import Convert
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

REMARK_END = b"\n"


def open(
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    batch: int = 1,
    states: Sequence[StateSpec] = (),
    name: str = "openvino",
) -> OpenvinoBackend:
    """Compile the model for a device, named as OpenVINO names it."""
    telemetry.disable()
    try:
        import openvino

        core = openvino.Core()
        model = _read(core, files, batch, inputs, states)
        compiled = compile_model(core, model, threads, device)
        to_bytes = byte_inputs.byte_encoder(_graph(files), inputs)
        return OpenvinoBackend(openvino.Tensor, compiled, inputs, outputs, batch, states, to_bytes)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise open_error("openvino", error) from error


def export_compiled(
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    states: Sequence[StateSpec] = (),
) -> bytes:
    """Return the compiled model, which `import_compiled` can load with this OpenVINO on this CPU.

    The file's remark about byte inputs precedes the model, in a line of its own.
    """
    import io

    telemetry.disable()
    import openvino

    core = openvino.Core()
    stream = io.BytesIO()
    compile_model(core, _read(core, files, 1, inputs, states), threads, device).export_model(stream)
    remark = byte_inputs.find_remark(_graph(files))
    return (remark + REMARK_END if remark else b"") + stream.getvalue()


def import_compiled(
    blob: bytes,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    states: Sequence[StateSpec] = (),
) -> OpenvinoBackend:
    """Open the result of `export_compiled`. Raises BackendError if it comes from another version or another machine."""
    telemetry.disable()
    try:
        import io

        import openvino

        core, remark = openvino.Core(), b""
        if blob.startswith(byte_inputs.BEGIN.encode()):
            remark, _, blob = blob.partition(REMARK_END)
        model = core.import_model(io.BytesIO(blob), device, settings(threads, device))
        to_bytes = byte_inputs.byte_encoder(remark, inputs)
        return OpenvinoBackend(openvino.Tensor, model, inputs, outputs, 1, states, to_bytes)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise open_error("openvino", error) from error


def _graph(files: Mapping[str, bytes]) -> bytes:
    """Return the file that holds the graph, with or without weights."""
    return single_file(files, ".onnx" if any(name.endswith(".onnx") for name in files) else ".xml")


def _read(
    core: Any, files: Mapping[str, bytes], batch: int, inputs: Sequence[TensorSpec], states: Sequence[StateSpec]
) -> Any:
    is_onnx = any(name.endswith(".onnx") for name in files)
    model = (
        core.read_model(closed_model_file(files, ".onnx", "openvino"), b"")
        if is_onnx
        else core.read_model(closed_model_file(files, ".xml", "openvino"), single_file(files, ".bin"))
    )
    positions = match_inputs([port.get_names() for port in model.inputs], inputs, states)
    ports = [model.inputs[position] for position in positions]
    shapes = {port: port.partial_shape for port in ports}
    batched = [shape for shape in shapes.values() if len(shape)]
    if any(batch != 1 or shape[0].is_dynamic for shape in batched):
        for shape in batched:
            shape[0] = batch
        model.reshape({**shapes, **{each.input: list(each.shape) for each in states}})
    return model


def _shape(port: Any) -> list[int | None]:
    """Return a port's dimensions, with None for dynamic ones."""
    return [side.get_length() if side.is_static else None for side in port.partial_shape]


def _facts(port: Any) -> tuple[list[int | None], str]:
    """Return a port's shape and dtype."""
    return _shape(port), np.dtype(port.element_type.to_dtype()).name


def compile_model(core: Any, model: Any, threads: int, device: str = "CPU", **more: Any) -> Any:
    """Compile an OpenVINO model. All of edgekit compiles OpenVINO models here.

    Parameters
    ----------
    core : openvino.Core
    model : openvino.Model or path
    threads : int
        Threads of the CPU plugin.
    device : str
        The device, named as OpenVINO names it.
    **more
        Further settings of OpenVINO, for example ``PERF_COUNT=True``.
    """
    return core.compile_model(model, device, {**settings(threads, device), **more})


def settings(threads: int, device: str = "CPU") -> dict[str, Any]:
    """Return settings that keep float arithmetic in float32.

    By default, OpenVINO computes in bfloat16 on processors that support it, also if AUTO, MULTI or HETERO chooses the
    CPU. A GPU or an NPU is chosen by the user explicitly, and keeps its own default.
    """
    precision = {} if device.startswith(("GPU", "NPU")) else {"INFERENCE_PRECISION_HINT": "f32"}
    count = {"INFERENCE_NUM_THREADS": threads} if device == "CPU" else {}
    return {"PERFORMANCE_HINT": "LATENCY", **count, **precision}


class OpenvinoBackend(BaseBackend):
    """A compiled model with one inference request on NumPy arrays. Calling the model itself takes twice as long."""

    def __init__(
        self,
        tensor: Any,
        compiled: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        batch: int = 1,
        states: Sequence[StateSpec] = (),
        to_bytes: Convert = None,
    ) -> None:
        sides = compiled.inputs, compiled.outputs
        matched = match_tensors([[port.get_names() for port in ports] for ports in sides], inputs, outputs, states)
        check_state_tensors(states, matched, [[_facts(port) for port in ports] for ports in sides])
        for side, (what, specs) in enumerate((("input", inputs), ("output", outputs))):
            for spec, position in zip(specs, matched[side]):
                check_tensor(what, spec, *_facts(sides[side][position]), batch)
        encodes = [to_bytes or input_converter(each.dtype) for each in inputs]
        decode = output_decoder([None if each.dtype == "float32" else cast_to(np.float32) for each in outputs], outputs)
        super().__init__("openvino", inputs, encodes, decode, batch, states)
        self._sources = [np.zeros((batch, *each.shape[1:]), dtype=each.dtype) for each in inputs]
        self._source = self._sources[0] if len(inputs) == 1 else None
        self._results = [np.zeros((batch, *each.shape[1:]), dtype=each.dtype) for each in outputs]
        self._result = self._results[0] if len(outputs) == 1 else None
        self._request = compiled.create_infer_request()
        self._state_inputs, self._state_outputs = self.zeros(), self.zeros()
        state_inputs, state_outputs = ([each[side] for each in matched.states] for side in (0, 1))
        for position, array in (*zip(matched.sources, self._sources), *zip(state_inputs, self._state_inputs)):
            self._request.set_input_tensor(position, tensor(array, shared_memory=True))
        for position, array in (*zip(matched.results, self._results), *zip(state_outputs, self._state_outputs)):
            self._request.set_output_tensor(position, tensor(array, shared_memory=True))

    def invoke(self, x: np.ndarray) -> Any:
        """See `BaseBackend`."""
        if self._state_inputs:
            return self.step(x, self.zeros())[0]
        self._feed(x)
        self._request.infer(share_outputs=True)
        return self._outputs() if self._result is None else self._result.copy()

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """See `BaseBackend`."""
        for array, state in zip(self._state_inputs, states):
            array[...] = state
        self._feed(x)
        self._request.infer(share_outputs=True)
        y = self._outputs()
        return y if self._result is None else y[0], [after.copy() for after in self._state_outputs]

    def _feed(self, x: np.ndarray) -> None:
        if self._source is not None:
            copy_input(self._source, x)
            return
        for array, tensor in zip(self._sources, self.tensors(x)):
            array[...] = tensor

    def _outputs(self) -> list[np.ndarray]:
        return [result.copy() for result in self._results]
