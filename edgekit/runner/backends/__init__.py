"""Interpreters: which exist, which are installed, and how to open a model on one.

A row of `INTERPRETERS` names the module here that opens models on it. Each such module offers

    open(files, inputs, outputs, threads, device, batch, states, name)
                                                   -> a `BaseBackend` model that takes `batch` samples per call

`open` gets the model from `base.closed_model_file`, which refuses models that open files outside their bundle.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edgekit.runner.errors import BackendError, InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

    Outputs = Any
    """The model's output, or a list if it has several; `Backend.decode` makes one array of either."""


class Interpreter(NamedTuple):
    """An interpreter: its names for pip and `import`, the targets that it runs, and the module that opens models."""

    distribution: str
    package: str
    targets: tuple[str, ...]
    file: str

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported. This does not import it, and a folder of that name does not count."""
        if self.package in sys.modules:
            return True
        from importlib.util import find_spec

        spec = find_spec(self.package)
        return spec is not None and spec.origin is not None


INTERPRETERS = {
    "litert": Interpreter("ai-edge-litert", "ai_edge_litert", ("tflite",), "tflite"),
    "onnxruntime": Interpreter("onnxruntime", "onnxruntime", ("onnx",), "onnxruntime"),
    "openvino": Interpreter("openvino", "openvino", ("openvino", "onnx"), "openvino"),
    "tensorflow": Interpreter("tensorflow", "tensorflow", ("tflite",), "tflite"),
    "tflite_runtime": Interpreter("tflite-runtime", "tflite_runtime", ("tflite",), "tflite"),
}
MOST_THREADS = 1024
PREFERENCE: dict[str, tuple[str, ...]] = {
    "tflite": ("litert", "tflite_runtime", "tensorflow"),
    "openvino": ("openvino",),
    "onnx": ("onnxruntime", "openvino"),
}
"""The order in which interpreters are chosen if nothing was measured."""


class MissingInterpreterError(BackendError):
    """The requested interpreter does not run the target, or none is installed. The model is not at fault."""


class Backend(Protocol):
    """An opened model. `base.BaseBackend` documents the methods."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    encode: Callable[[np.ndarray], np.ndarray] | None
    decode: Callable[[Outputs], np.ndarray] | None

    @property
    def version(self) -> str: ...

    def invoke(self, x: np.ndarray) -> Outputs: ...

    def tensors(self, x: np.ndarray) -> list[np.ndarray]: ...

    def zeros(self) -> list[np.ndarray]: ...

    def step(self, x: np.ndarray, states: list[np.ndarray]) -> tuple[Outputs, list[np.ndarray]]: ...

    def run(self, x: np.ndarray) -> np.ndarray: ...


class States:
    """The recurrent states of one stream: zeros at first, then the states that the model returned last."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._arrays = backend, backend.zeros()

    def step(self, x: np.ndarray) -> np.ndarray:
        """Return the model's outputs for the next input, in the form of `Backend.invoke`."""
        y, arrays = self._backend.step(x, self._arrays)
        if not all(each.dtype.kind != "f" or isfinite(each.sum(dtype=float)) for each in arrays):
            self._arrays = self._backend.zeros()
            raise BackendError("a state is no longer finite; the stream starts again with zeros")
        self._arrays = arrays
        return y


def interpreters_for(target: str) -> list[str]:
    """Return the interpreters for a target, preferred ones first."""
    names = [name for name, each in INTERPRETERS.items() if target in each.targets]
    order = PREFERENCE.get(target, ())
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def open_backend(
    target: str,
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int = 1,
    interpreter: str | None = None,
    device: str = "CPU",
    batch: int = 1,
    states: Sequence[StateSpec] = (),
    head: Mapping[str, Any] | None = None,
) -> Backend:
    """Open a model on the requested interpreter, or on the preferred one that is installed.

    `batch` is how many samples a call takes, although the specs declare one. A model with `states` always takes one.
    `head` is that of a manifest; `Backend.decode` then converts the outputs of a published detector, too.
    Raises BackendError if no interpreter can open the model.
    """
    check_threads(threads)
    name = installed_interpreters(target, interpreter)[0]
    module = importlib.import_module(f"{__name__}.{INTERPRETERS[name].file}")
    backend: Backend = module.open(files, inputs, outputs, threads, device, batch, states, name)
    if head is not None:
        from edgekit.runner.box_heads import HeadDecoder

        decode, convert = backend.decode, HeadDecoder(head, [each.answer for each in outputs])
        backend.decode = convert if decode is None else lambda y: convert(decode(y))
    return backend


def installed_interpreters(target: str, interpreter: str | None = None) -> list[str]:
    """Return the installed interpreters for a target, preferred ones first, or only the requested one.

    Raises BackendError if none of them is installed.
    """
    requested = _requested_interpreters(target, interpreter)
    installed = [name for name in requested if INTERPRETERS[name].is_installed]
    if not installed:
        problem = (
            f"{interpreter} is not installed" if interpreter else f"no interpreter for {target} models is installed"
        )
        pip = f"{sys.executable} -m pip install {INTERPRETERS[requested[0]].distribution}"
        raise MissingInterpreterError(f"{problem}; run: {pip} (or see `edgerun doctor`)")
    return installed


def check_threads(threads: object) -> None:
    """Raise InputError unless the value is a valid number of threads."""
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads: got {threads!r}; use a whole number from 1 to {MOST_THREADS}")


def _requested_interpreters(target: str, interpreter: str | None) -> list[str]:
    """Return the requested interpreter alone, or all interpreters for the target if none is requested."""
    if interpreter is not None and interpreter in PREFERENCE.get(target, ()):
        return [interpreter]
    names = interpreters_for(target)
    if not names:
        targets = sorted({each for row in INTERPRETERS.values() for each in row.targets})
        raise BackendError(f"target: got {target!r}; use one of {', '.join(targets)}")
    if interpreter is not None and interpreter not in names:
        raise MissingInterpreterError(f"interpreter: got {interpreter!r}; {target} models run on {', '.join(names)}")
    return [interpreter] if interpreter else names
