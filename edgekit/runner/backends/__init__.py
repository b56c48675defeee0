"""Interpreters, one file each; the file's name is the key. Each of them offers

    TARGETS, DISTRIBUTION, PACKAGE                 what it runs, and the names that pip and `import` know it by
    available() -> bool                            without importing it
    open(files, inputs, outputs, threads, device, batch, states)
                                                   -> an `Opened` model that takes `batch` samples a call

A new interpreter is a new file here; files that begin with `_` are shared parts. It takes its model from
`_common.only`, which lets no model pass that opens files outside its bundle.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.runner.errors import BackendError, InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

    Outputs = Any
    """The model's output, or a list of them where it has several; `Backend.decode` makes one array of either."""

MOST_THREADS = 1024
PREFERENCE: dict[str, tuple[str, ...]] = {
    "tflite": ("litert", "tflite_runtime", "tensorflow"),
    "openvino": ("openvino",),
    "onnx": ("onnxruntime", "openvino"),
}
"""Which interpreter comes first where nothing was measured."""


class MissingError(BackendError):
    """No fault of a model: the interpreter that was asked for does not run its target, or none is installed."""


class Backend(Protocol):
    """An opened model; `_common.Opened` says what the methods do."""

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


def names() -> list[str]:
    """Every interpreter that has a file here, sorted."""
    import pkgutil

    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def candidates(target: str) -> list[str]:
    """Interpreters for a target, preferred ones first."""
    mine = [name for name in names() if target in module(name).TARGETS]
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
    first = module(installed(target, interpreter)[0])
    backend: Backend = first.open(files, inputs, outputs, threads, device, batch, states)
    return backend


def installed(target: str, interpreter: str | None = None) -> list[str]:
    """Those of a target's interpreters that are installed, preferred ones first; BackendError when there is none."""
    wanted = _wanted(target, interpreter)
    found = [name for name in wanted if module(name).available()]
    if not found:
        what = f"{interpreter} is not installed" if interpreter else f"no interpreter for {target} models is installed"
        pip = f"{sys.executable} -m pip install {module(wanted[0]).DISTRIBUTION}"
        raise MissingError(f"{what}; run: {pip} (or see `edgerun doctor`)")
    return found


def check_threads(threads: object) -> None:
    """InputError unless it is a number of threads that makes sense."""
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads: got {threads!r}; use a whole number from 1 to {MOST_THREADS}")


def _wanted(target: str, interpreter: str | None) -> list[str]:
    """The one that is asked for, the others not even looked at; else all of the target."""
    if interpreter is not None and interpreter in PREFERENCE.get(target, ()):
        return [interpreter]
    known = candidates(target)
    if not known:
        raise BackendError(f"target: got {target!r}; this runner knows {', '.join(_targets())}")
    if interpreter is not None and interpreter not in known:
        raise MissingError(f"interpreter: got {interpreter!r}; {target} models run on {', '.join(known)}")
    return [interpreter] if interpreter else known


def module(name: str) -> Any:
    """The file of one interpreter."""
    return importlib.import_module(f"{__name__}.{name}")


def _targets() -> list[str]:
    return sorted({target for name in names() for target in module(name).TARGETS})
