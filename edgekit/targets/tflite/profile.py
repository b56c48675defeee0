"""Time the operators of a TFLite file by LiteRT's profiler, through the C interface of the library in its wheel.

LiteRT's Python interface does not offer the profiler. The declarations are those of litert/c/litert_profiler.h,
litert_profiler_event.h and litert_layout.h of LiteRT 2.3.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.targets.jobs import ConvertedFiles, input_parts

if TYPE_CHECKING:
    from edgekit.core.schema.profile import OperatorTime

CPU = 1
ELEMENT = {"float32": 1, "int32": 2, "uint8": 3, "int64": 4, "int8": 9, "float16": 10}
OPERATOR = 1 << 1
INSIDE_DELEGATE = 1 << 2
PROFILED_DELEGATE = 1 << 3
PROFILING = b"enable_profiling = true\n"
ALIGNMENT = 64
WARM_UP = 3


class _Layout(c.Structure):
    _fields_ = (("rank_and_strides", c.c_uint32), ("dimensions", c.c_int32 * 8), ("strides", c.c_uint32 * 8))


class _TensorType(c.Structure):
    _fields_ = (("element", c.c_int), ("layout", _Layout))


class _Event(c.Structure):
    _fields_ = (
        ("tag", c.c_char_p),
        ("kind", c.c_int),
        ("start_us", c.c_uint64),
        ("elapsed_us", c.c_uint64),
        ("memory", c.c_size_t * 6),
        ("metadata", c.c_uint64 * 2),
        ("source", c.c_int),
    )


def rows(folder: Path, files: ConvertedFiles, x: np.ndarray, calls: int) -> list[OperatorTime]:
    """Return the time of each operator, in order.

    Where XNNPACK runs part of the graph, its own (fused) operators are listed instead of the file's.
    """
    path = folder / files.names[0]
    by_name = dict(zip([each.name for each in files.inputs], input_parts(x, files.inputs), strict=True))
    tensors = [x.astype(files.input.dtype)] if len(by_name) == 1 else [by_name[name] for name in _names(path)]
    model = _Model(path, tensors, [each.dtype for each in files.outputs])
    for _ in range(WARM_UP):
        model.run()
    model.forget()
    for _ in range(calls):
        model.run()
    spent: dict[tuple[int, str], float] = {}
    for index, name, elapsed_us in model.events():
        spent[index, name] = spent.get((index, name), 0.0) + elapsed_us / 1e3
    return [
        {"operator": _kind(name), "name": f"{index} {name}", "self_ms": time / calls}
        for (index, name), time in spent.items()
    ]


class _Model:
    """A compiled model with its profiler switched on. The status of every call into the library is checked."""

    def __init__(self, path: Path, tensors: Sequence[np.ndarray], output_dtypes: Sequence[str]) -> None:
        import ai_edge_litert

        self._library = c.CDLL(str(Path(ai_edge_litert.__file__).parent / "libLiteRt.so"))
        environment, model, options, opaque = (c.c_void_p() for _ in range(4))
        self._compiled, self._profiler = c.c_void_p(), c.c_void_p()
        self._call("LiteRtCreateEnvironment", 0, None, c.byref(environment))
        self._call("LiteRtCreateModelFromFile", environment, str(path).encode(), c.byref(model))
        self._call("LiteRtCreateOptions", c.byref(options))
        self._call("LiteRtSetOptionsHardwareAccelerators", options, CPU)
        self._text = c.create_string_buffer(PROFILING)
        # a deallocator that does nothing: Python owns the text and the buffers' memory, so LiteRT must not free them
        self._no_free = c.CFUNCTYPE(None, c.c_void_p)(lambda _: None)
        self._call("LiteRtCreateOpaqueOptions", b"runtime_options_string", self._text, self._no_free, c.byref(opaque))
        self._call("LiteRtAddOpaqueOptions", options, opaque)
        self._call("LiteRtCreateCompiledModel", environment, model, options, c.byref(self._compiled))
        self._call("LiteRtCompiledModelGetProfiler", self._compiled, c.byref(self._profiler))
        self._call("LiteRtStartProfiler", self._profiler)
        self._memory: list[np.ndarray] = []  # the memory of the buffers
        self._inputs = [self._input_buffer(index, x) for index, x in enumerate(tensors)]
        count = len(output_dtypes)
        outputs = (_Layout * count)()
        self._call(
            "LiteRtGetCompiledModelOutputTensorLayouts",
            self._compiled, c.c_size_t(0), c.c_size_t(count), outputs, c.c_bool(False),
        )  # fmt: skip
        self._outputs = [
            self._buffer("Output", index, dtype, outputs[index], None) for index, dtype in enumerate(output_dtypes)
        ]

    def run(self) -> None:
        """Run one inference."""
        arguments = []
        for buffers in (self._inputs, self._outputs):
            arguments += [c.c_size_t(len(buffers)), (c.c_void_p * len(buffers))(*buffers)]
        self._call("LiteRtRunCompiledModel", self._compiled, c.c_size_t(0), *arguments)

    def forget(self) -> None:
        """Drop the recorded events and start the profiler again, because resetting stops it."""
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)

    def events(self) -> Iterator[tuple[int, str, int]]:
        """Yield (index in the graph, name, µs) of every operator of every call.

        If a delegate reports its own operators, the node of the delegate is left out, so that its time does not count
        twice.
        """
        count = c.c_int()
        # the profiler's buffer grows, so that no event is lost
        self._call("LiteRtGetNumProfilerEvents", self._profiler, c.byref(count))
        events = (_Event * count.value)()
        self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        inside = any(event.kind & INSIDE_DELEGATE for event in events)
        for event in events:
            name = (event.tag or b"").decode(errors="replace")
            own = event.kind & (INSIDE_DELEGATE | PROFILED_DELEGATE)
            if own or (event.kind & OPERATOR and not (inside and "delegate" in name.lower())):
                yield event.metadata[0], name, event.elapsed_us

    def _input_buffer(self, index: int, x: np.ndarray) -> c.c_void_p:
        layout = _Layout()
        self._call(
            "LiteRtGetCompiledModelInputTensorLayout", self._compiled, c.c_size_t(0), c.c_size_t(index), c.byref(layout)
        )
        return self._buffer("Input", index, x.dtype.name, layout, x.tobytes())

    def _buffer(self, which: str, number: int, dtype: str, layout: _Layout, content: bytes | None) -> c.c_void_p:
        requirements, size, buffer = c.c_void_p(), c.c_size_t(), c.c_void_p()
        self._call(
            f"LiteRtGetCompiledModel{which}BufferRequirements",
            self._compiled, c.c_size_t(0), c.c_size_t(number), c.byref(requirements),
        )  # fmt: skip
        self._call("LiteRtGetTensorBufferRequirementsBufferSize", requirements, c.byref(size))
        memory = np.zeros(size.value + ALIGNMENT, np.uint8)
        offset = -memory.ctypes.data % ALIGNMENT
        if content is not None:
            memory[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        self._memory.append(memory)
        kind = _TensorType(ELEMENT[dtype], layout)
        address = c.c_void_p(memory.ctypes.data + offset)
        self._call(
            "LiteRtCreateTensorBufferFromHostMemory", c.byref(kind), address, size, self._no_free, c.byref(buffer)
        )
        return buffer

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: LiteRT returned status {status}")


def _names(path: Path) -> list[str]:
    """Return the names of the file's inputs, in LiteRT's order."""
    from ai_edge_litert.interpreter import Interpreter

    return [detail["name"] for detail in Interpreter(model_path=str(path)).get_input_details()]


def _kind(name: str) -> str:
    """Return the kind in a node's name without its number, for example `Convolution (NHWC, QC8)`."""
    return name.partition(":")[0].strip() or "unnamed"
