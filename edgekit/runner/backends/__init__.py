"""Interpreters, one file each; the file's name is the key. Each of them offers

    TARGET, DISTRIBUTION            what it runs, and the name pip knows it by
    available() -> bool             without importing it
    open(files, input, output, threads) -> Backend

A new interpreter is a new file here; files that begin with `_` are shared parts.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.runner.errors import BackendError, InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.manifest import TensorSpec

PREFERENCE: dict[str, tuple[str, ...]] = {"tflite": ("litert", "tflite_runtime")}
"""Which interpreter comes first where a target has several; a target that is not named here has one."""


class Backend(Protocol):
    """An opened model. `run` takes and gives float32 arrays; integer models are converted inside."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def run(self, x: np.ndarray) -> np.ndarray:
        """Scores for one input shaped as the input spec; the result is the caller's own array."""
        ...


def names() -> list[str]:
    """Every interpreter that has a file here, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def candidates(target: str) -> list[str]:
    """Interpreters for a target, preferred ones first."""
    mine = [name for name in names() if target == _module(name).TARGET]
    order = PREFERENCE.get(target, ())
    return sorted(mine, key=lambda name: (order.index(name) if name in order else len(order), name))


def open_backend(
    target: str,
    files: Mapping[str, bytes],
    input: TensorSpec,
    output: TensorSpec,
    threads: int = 1,
    interpreter: str | None = None,
) -> Backend:
    """Open a model on the chosen interpreter, else on the preferred one that is installed; else BackendError."""
    known = candidates(target)
    if not known:
        raise BackendError(f"target: got {target!r}; this runner knows {', '.join(_targets())}")
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise InputError(f"threads: got {threads!r}; use a whole number from 1")
    if interpreter is not None and interpreter not in known:
        raise BackendError(f"interpreter: got {interpreter!r}; {target} models run on {', '.join(known)}")
    modules = [_module(name) for name in ([interpreter] if interpreter else known)]
    for module in modules:
        if module.available():
            backend: Backend = module.open(files, input, output, threads)
            return backend
    what = f"{interpreter} is not installed" if interpreter else f"no interpreter for {target} models is installed"
    raise BackendError(f"{what}; run: pip install {modules[0].DISTRIBUTION}")


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")


def _targets() -> list[str]:
    return sorted({_module(name).TARGET for name in names()})
