"""What the interpreters share: finding a package without importing it, and holding a model against its specs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.errors import BackendError, InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec


def installed(package: str) -> bool:
    """Whether a top-level package can be imported; a bare folder of that name does not count."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def version(distribution: str) -> str:
    """Installed version of a distribution; imported late, `importlib.metadata` costs milliseconds."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def only(files: Mapping[str, bytes], suffix: str) -> bytes:
    """The one model file with this suffix."""
    found = [name for name in files if name.endswith(suffix)]
    if len(found) != 1:
        raise BackendError(f"model files: got {sorted(files)}; exactly one must end in {suffix}")
    return files[found[0]]


def agree(what: str, spec: TensorSpec, shape: Sequence[int], dtype: str) -> None:
    """BackendError when the model's own tensor is not what the bundle says."""
    if tuple(shape) != spec.shape or dtype != spec.dtype:
        raise BackendError(
            f"{what}: the model has {dtype}{list(shape)}, the bundle says {spec.dtype}{list(spec.shape)}; "
            "the bundle was put together wrongly, build it again"
        )


def one_each(inputs: int, outputs: int) -> None:
    """BackendError unless the model has one input and one output."""
    if inputs != 1 or outputs != 1:
        raise BackendError(f"the model has {inputs} inputs and {outputs} outputs; this runner takes one of each")


def misfit(x: np.ndarray, shape: tuple[int, ...]) -> InputError:
    """The error for an array that does not fit the model's input."""
    return InputError(f"model input: got {x.dtype}{list(x.shape)}, the model takes float32{list(shape)}")


def cannot_open(name: str, error: Exception) -> BackendError:
    """The error for a model that the interpreter refuses."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return BackendError(f"{name} cannot open the model: {reason}")
