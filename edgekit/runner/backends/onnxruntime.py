"""ONNX Runtime on the CPU."""

from __future__ import annotations

import builtins
import functools
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
    match_tensors,
    open_error,
    output_decoder,
    require_cpu,
)

if TYPE_CHECKING:
    from edgekit.runner.backends.base import Convert
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
}
EXACT_SUMS_OPTION = ("session.x64quantprecision", "1")
"""On x86 without VNNI, products of uint8 and int8 are summed in 16 bits, which can overflow.

With this option, both factors are converted to uint8, which is correct and a fifth slower. Processors with VNNI give
the same answers without the option, in half the time.
"""
FLOAT_FALLBACK_OPTION = ("session.disable_quant_qdq", "1")
"""Compute everything between QuantizeLinear and DequantizeLinear in float: always correct, but as slow as float.

Integer operators in the file itself, such as dynamic quantization, remain.
"""
VNNI = {"avx512_vnni", "avx_vnni"}
CPUINFO = "/proc/cpuinfo"
BATCH = "batch"
"""The name that edgekit's exports give the dynamic batch axis. A session fixes it and plans its memory for it."""
QUIET = 3  # errors only: warnings about graph optimisation do not concern a device's user


def open(
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    batch: int = 1,
    states: Sequence[StateSpec] = (),
    name: str = "onnxruntime",
) -> OnnxruntimeBackend:
    """Open the one .onnx file from memory."""
    require_cpu(name, device)
    model = closed_model_file(files, ".onnx", name)
    telemetry.disable()
    try:
        import onnxruntime
    except ImportError as error:
        raise open_error(name, error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    options.add_free_dimension_override_by_name(BATCH, batch)
    try:
        opened = session(model, options)
    except Exception as error:  # its errors share no base class but Exception
        raise open_error(name, error) from error
    return OnnxruntimeBackend(opened, inputs, outputs, batch, states, byte_inputs.byte_encoder(model, inputs))


@functools.cache
def has_vnni() -> bool:
    """Whether this processor reports VNNI instructions."""
    try:
        with builtins.open(CPUINFO, encoding="utf-8", errors="replace") as lines:
            return any(not VNNI.isdisjoint(line.split()) for line in lines if line.startswith("flags"))
    except OSError:
        return False


def runtime_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that ONNX Runtime raises for a model or an input. Its own share no base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as own

    classes = (each for each in vars(own).values() if isinstance(each, type) and issubclass(each, Exception))
    return (RuntimeError, ValueError, *classes)


def session(model: bytes | str, options: Any) -> Any:
    """Return an `InferenceSession` whose integer sums do not overflow.

    ONNX Runtime cannot prepare every graph for exact sums: it fails on zero points of weights that several operators
    share (1.31: "AddInitializerWithOrtValue"). The quantized layers of such a graph are computed in float instead, with
    the same quantization levels.
    """
    telemetry.disable()
    import onnxruntime

    if has_vnni():
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    try:
        options.add_session_config_entry(*EXACT_SUMS_OPTION)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # its errors share no base class but Exception; a faulty file fails again below
        options.add_session_config_entry(EXACT_SUMS_OPTION[0], "0")
        options.add_session_config_entry(*FLOAT_FALLBACK_OPTION)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class OnnxruntimeBackend(BaseBackend):
    """An ONNX Runtime session. Every call returns a new array.

    A single input and output without states are bound to arrays once, which saves 1 µs per call.
    """

    def __init__(
        self,
        session: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        batch: int = 1,
        states: Sequence[StateSpec] = (),
        to_bytes: Convert = None,
    ) -> None:
        sides = session.get_inputs(), session.get_outputs()
        matched = match_tensors([[{port.name} for port in ports] for ports in sides], inputs, outputs, states)
        tensor_types = [[(port.shape, DTYPES.get(port.type, port.type)) for port in ports] for ports in sides]
        check_state_tensors(states, matched, tensor_types)
        for what, specs, side, ports in zip(("input", "output"), (inputs, outputs), tensor_types, matched[:2]):
            for spec, port in zip(specs, ports):
                check_tensor(what, spec, *side[port], batch)
        encodes = [to_bytes or input_converter(each.dtype) for each in inputs]
        decode = output_decoder([None if each.dtype == "float32" else cast_to(np.float32) for each in outputs], outputs)
        super().__init__("onnxruntime", inputs, encodes, decode, batch, states)
        self._run = session.run
        self._inputs, self._outputs = (
            [side[port].name for port in positions] for side, positions in zip(sides, matched[:2])
        )
        self._input = self._inputs[0] if len(inputs) == 1 else None
        self._is_one = len(outputs) == 1
        self._bound = None
        if self._is_one and self._input is not None and not states:
            self._source = np.zeros(self.shape, self.dtype)
            self._result = np.zeros((batch, *outputs[0].shape[1:]), outputs[0].dtype)
            self._bound = _bind_arrays(session, (self._input, self._source), (self._outputs[0], self._result))
            self._run_bound = session.run_with_iobinding
        self._state_inputs, self._state_outputs = [each.input for each in states], [each.output for each in states]

    def invoke(self, x: np.ndarray) -> Any:
        """See `BaseBackend`."""
        if self._bound is not None:
            copy_input(self._source, x)
            self._run_bound(self._bound)
            return self._result.copy()
        if self._state_inputs:
            return self.step(x, self.zeros())[0]
        outputs = self._run(self._outputs, self._feed(x))
        return outputs[0] if self._is_one else outputs

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """See `BaseBackend`."""
        outputs = self._run(
            [*self._outputs, *self._state_outputs], {**self._feed(x), **dict(zip(self._state_inputs, states))}
        )
        count = len(self._outputs)
        return outputs[0] if self._is_one else outputs[:count], outputs[count:]

    def _feed(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {self._input: x} if self._input is not None else dict(zip(self._inputs, self.tensors(x)))


def _bind_arrays(session: Any, source: tuple[str, np.ndarray], result: tuple[str, np.ndarray]) -> Any:
    """Bind one input and one output, by name, to arrays that the session then reads and writes in place."""
    import onnxruntime

    of_array = onnxruntime.OrtValue.ortvalue_from_numpy
    binding = session.io_binding()
    binding.bind_ortvalue_input(source[0], of_array(source[1]))
    binding.bind_ortvalue_output(result[0], of_array(result[1]))
    return binding
