"""Errors of the workstation. The errors of the device are in `edgekit.runner.errors`.

Every message says what was wrong, which value was received, and what to do about it. `exit_code` is the exit code of
the command line; the codes are defined only here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from edgekit.runner import errors as runner_errors
from edgekit.runner.errors import RunnerError

RESOURCE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM)
"""Codes of OSErrors whose cause is the disk, memory or permissions."""


class EdgekitError(Exception):
    """Base class of every error that edgekit raises on purpose."""

    exit_code = 1


class ConfigError(EdgekitError):
    """A config, a parameter or a command-line option is wrong."""

    exit_code = 2


class BudgetMissed(EdgekitError):
    """The run finished, but no variant met the budget."""

    exit_code = 3


class BudgetUnreachable(EdgekitError):
    """The run stopped before any training, because no candidate for the student is within the budget."""

    exit_code = 3


class DataError(EdgekitError):
    """The samples cannot be used as they are."""

    exit_code = 4


class ModelError(EdgekitError):
    """A model cannot be built, loaded or trained."""

    exit_code = 4


class ConversionError(EdgekitError):
    """A conversion failed, or the outputs of its file differ too much from those of the step before."""

    exit_code = 5


class StageError(EdgekitError):
    """A stage or its kernel failed."""

    exit_code = 6


class ResourceError(EdgekitError):
    """Disk, memory or permissions ran out."""

    exit_code = 7


class TrustError(EdgekitError):
    """A digest does not match what was recorded."""

    exit_code = 8


def error_class(name: str) -> type[EdgekitError] | None:
    """Return the error class with this name, or None."""
    value = globals().get(name)
    return value if isinstance(value, type) and issubclass(value, EdgekitError) else None


def error_from_name(name: str, message: str) -> EdgekitError | None:
    """Recreate an error of another process from the name of its class and its message, which a notebook stores.

    Returns None if the class is unknown. An error of the runner that has no counterpart here becomes an EdgekitError
    with its exit code.
    """
    if kind := error_class(name):
        return kind(message)
    runner_class = getattr(runner_errors, name, None)
    if not (isinstance(runner_class, type) and issubclass(runner_class, RunnerError)):
        return None
    error = EdgekitError(message)
    error.exit_code = runner_class.exit_code
    return error


def to_json(error: Exception) -> dict[str, Any]:
    """Convert an error of edgekit or of its runner to JSON for another process; `from_json` reads it."""
    return {"error": str(error), "kind": type(error).__name__, "exit_code": getattr(error, "exit_code", 1)}


def from_json(fields: Mapping[str, Any]) -> EdgekitError:
    """Recreate the error that another process wrote.

    An error of the runner becomes an EdgekitError with its exit code.
    """
    error = (error_class(str(fields["kind"])) or EdgekitError)(fields["error"])
    error.exit_code = int(fields["exit_code"])
    return error


def with_article(noun: str) -> str:
    """Return the noun with its article: `an int`, `a dict`."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


T = TypeVar("T")
MAX_FAULT_LINES = 20
"""Largest number of faults that a message lists. Of all further faults, it gives only the number."""


class FaultCollector:
    """Collects ConfigErrors so that they can be raised together."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, fault: str) -> None:
        """Add a fault, which may have several lines."""
        self.messages += fault.splitlines()

    def collect(self, function: Callable[[], T]) -> T | None:
        """Return the result of a function. If it raises a ConfigError, add the error and return None."""
        try:
            return function()
        except ConfigError as error:
            self.add(str(error))
            return None

    def raise_all(self, most: int | None = None) -> None:
        """Raise all faults as one ConfigError, if there are any.

        It lists at most `most` of them and counts the rest.
        """
        if not self.messages:
            return
        hidden = len(self.messages) - most if most else 0
        raise ConfigError("\n".join([*self.messages[:most], *([f"and {hidden} more"] if hidden > 0 else [])]))
