"""Arrays from a user's function, which returns a dict with the names documented in `edgekit.data.arrays`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from edgekit.core.config import Builder, suggest
from edgekit.core.errors import ConfigError, DataError
from edgekit.data.types import Pools, ProgressCallback, SourceConfig


class PythonConfig(SourceConfig):
    """Options of a function that creates the samples. It must return the same arrays every time it is called."""

    source: Literal["python"] = "python"
    function: Builder = Field(description="function that returns a dict of arrays, as package.module:function")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the function")


def identity(config: PythonConfig) -> None:
    """Return None, because only a call of the function can show what it reads."""
    return None


def read(config: PythonConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as `edgekit.data.arrays` describes them.

    Errors of the function become a DataError with their cause.
    """
    from edgekit.data import arrays

    function = _find(config.function)
    try:
        arrays_by_name = function(**config.kwargs)
    except (Exception, SystemExit) as error:
        cause = f"{type(error).__name__}: {error}"
        raise DataError(f"data.function: {config.function} failed with {config.kwargs!r} ({cause})") from error
    if not isinstance(arrays_by_name, Mapping):
        raise DataError(
            f"data.function: {config.function} returned {type(arrays_by_name).__name__}; "
            f"it must return a dict with x_train, y_train and, if you have them, {', '.join(arrays.ARRAY_NAMES[2:])}"
        )
    return arrays.pools_from_arrays(arrays_by_name, config.function, config.task)


def _find(spec: str) -> Callable[..., Any]:
    module_name, name = spec.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"data.function: no module {error.name!r} for {spec!r}; install it, or put its folder on PYTHONPATH "
                f"(looked in {', '.join(path or '.' for path in sys.path[:3])}, …)"
            ) from None
        raise DataError(f"data.function: {module_name} needs module {error.name!r}, which is not installed") from error
    except (Exception, SystemExit) as error:
        raise DataError(f"data.function: importing {module_name} failed ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        problem = "has no" if function is None else "has something that cannot be called under"
        raise ConfigError(f"data.function: {module_name} {problem} {name!r}, {suggest(name, callables)}")
    return function
