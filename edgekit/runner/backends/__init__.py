"""Interpreters: which there are, which of them are installed, and a model opened on one.

A row of `INTERPRETERS` names the file here that opens models on it. Each such file offers

    open(files, inputs, outputs, threads, device, batch, states, name)
                                                   -> an `BaseBackend` model that takes `batch` samples a call

It takes its model from `base.only`, which lets no model pass that opens files outside its bundle.
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
    """The model's output, or a list of them where it has several; `Backend.decode` makes one array of either."""


class Interpreter(NamedTuple):
    """What an interpreter runs, the names that pip and `import` know it by, and the file here that opens models."""

    distribution: str
    package: str
    targets: tuple[str, ...]
    file: str

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported, without importing it; a bare folder of that name does not count."""
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
"""Which interpreter comes first where nothing was measured."""


class MissingInterpreterError(BackendError):
    """No fault of a model: the interpreter that was asked for does not run its target, or none is installed."""


class Backend(Protocol):
    """An opened model; `base.BaseBackend` says what the methods do."""

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
    """Those of one stream: zeros at first, then what the model gave last."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._arrays = backend, backend.zeros()

    def step(self, x: np.ndarray) -> np.ndarray:
        """The model's outputs for the next input, as `Backend.invoke` gives them."""
        y, arrays = self._backend.step(x, self._arrays)
        if not all(each.dtype.kind != "f" or isfinite(each.sum(dtype=float)) for each in arrays):
            self._arrays = self._backend.zeros()
            raise BackendError("a state is no longer finite; the stream begins anew, with zeros")
        self._arrays = arrays
        return y


def interpreters_for(target: str) -> list[str]:
    """Interpreters for a target, preferred ones first."""
    mine = [name for name, each in INTERPRETERS.items() if target in each.targets]
    order = PREFERENCE.get(target, ())
    return sorted(mine, key=lambda name: (order.index(name) if name in order else len(order), name))


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
) -> Backend:
    """Open a model on the chosen interpreter, else on the preferred one that is installed; else BackendError.

    `batch` is how many samples a call takes; the specs state one. A model with `states` takes one.
    """
    check_threads(threads)
    first = installed_interpreters(target, interpreter)[0]
    file = importlib.import_module(f"{__name__}.{INTERPRETERS[first].file}")
    backend: Backend = file.open(files, inputs, outputs, threads, device, batch, states, first)
    return backend


def installed_interpreters(target: str, interpreter: str | None = None) -> list[str]:
    """Those of a target's interpreters that are installed, preferred ones first; BackendError when there is none."""
    wanted = _requested_interpreters(target, interpreter)
    found = [name for name in wanted if INTERPRETERS[name].is_installed]
    if not found:
        what = f"{interpreter} is not installed" if interpreter else f"no interpreter for {target} models is installed"
        pip = f"{sys.executable} -m pip install {INTERPRETERS[wanted[0]].distribution}"
        raise MissingInterpreterError(f"{what}; run: {pip} (or see `edgerun doctor`)")
    return found


def check_threads(threads: object) -> None:
    """InputError unless it is a number of threads that makes sense."""
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads: got {threads!r}; use a whole number from 1 to {MOST_THREADS}")


def _requested_interpreters(target: str, interpreter: str | None) -> list[str]:
    """The one that is asked for, the others not even looked at; else all of the target."""
    if interpreter is not None and interpreter in PREFERENCE.get(target, ()):
        return [interpreter]
    known = interpreters_for(target)
    if not known:
        targets = sorted({each for row in INTERPRETERS.values() for each in row.targets})
        raise BackendError(f"target: got {target!r}; this runner knows {', '.join(targets)}")
    if interpreter is not None and interpreter not in known:
        raise MissingInterpreterError(f"interpreter: got {interpreter!r}; {target} models run on {', '.join(known)}")
    return [interpreter] if interpreter else known
