"""Errors of the workbook's side; the device's side has its own in `edgekit.runner.errors`.

Every message says what was wrong, the value received, and what to do about it.
`exit_code` is what the command line returns, and the only place where the codes stand.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from edgekit.runner import errors as runner_errors
from edgekit.runner.errors import RunnerError

RESOURCE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOMEM)
"""What an OSError says when the disk, memory or permissions are the cause."""


class EdgekitError(Exception):
    """Base of every error that edgekit raises on purpose."""

    exit_code = 1


class ConfigError(EdgekitError):
    """A config, a parameter or a command-line option is wrong."""

    exit_code = 2


class BudgetMissed(EdgekitError):
    """No variant met the budget; the run itself finished."""

    exit_code = 3


class BudgetUnreachable(EdgekitError):
    """No candidate for the student is within the budget, so there is nothing to train and the run cannot go on."""

    exit_code = 3


class DataError(EdgekitError):
    """The samples cannot be used as they are."""

    exit_code = 4


class ModelError(EdgekitError):
    """A model cannot be built, loaded or trained."""

    exit_code = 4


class ConversionError(EdgekitError):
    """A conversion failed, or its outputs left the tolerance of their boundary."""

    exit_code = 5


class StageError(EdgekitError):
    """A stage or its kernel died."""

    exit_code = 6


class ResourceError(EdgekitError):
    """Disk, memory or permissions ran out."""

    exit_code = 7


class TrustError(EdgekitError):
    """A digest does not match what was recorded."""

    exit_code = 8


def error_class(name: str) -> type[EdgekitError] | None:
    """The error class of that name."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, EdgekitError) else None


def error_from_name(name: str, message: str) -> EdgekitError | None:
    """An error of another Python by the name of its class, which is all that a notebook keeps; None for other classes.

    One of the runner, where edgekit has none of that name, becomes an EdgekitError with its exit code.
    """
    if kind := error_class(name):
        return kind(message)
    runners = getattr(runner_errors, name, None)
    if not (isinstance(runners, type) and issubclass(runners, RunnerError)):
        return None
    found = EdgekitError(message)
    found.exit_code = runners.exit_code
    return found


def to_json(error: Exception) -> dict[str, Any]:
    """An error of edgekit or of its runner, for another process; `from_json` reads it."""
    return {"error": str(error), "kind": type(error).__name__, "exit_code": getattr(error, "exit_code", 1)}


def from_json(fields: Mapping[str, Any]) -> EdgekitError:
    """The error that another process wrote; one of the runner comes back as an EdgekitError with its exit code."""
    found = (error_class(str(fields["kind"])) or EdgekitError)(fields["error"])
    found.exit_code = int(fields["exit_code"])
    return found


def with_article(noun: str) -> str:
    """The noun with its article: `an int`, `a dict`."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


T = TypeVar("T")
MAX_FAULT_LINES = 20
"""Most lines in a message; of the rest it gives the number."""


class FaultCollector:
    """Collects ConfigErrors, to raise them together."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def add(self, fault: str) -> None:
        """One more, of a line or several."""
        self.messages += fault.splitlines()

    def collect(self, make: Callable[[], T]) -> T | None:
        """What `make` gives; None where it raises a ConfigError, which is kept."""
        try:
            return make()
        except ConfigError as error:
            self.add(str(error))
            return None

    def raise_all(self, most: int | None = None) -> None:
        """ConfigError where there is any, with at most so many lines."""
        if not self.messages:
            return
        more = len(self.messages) - most if most else 0
        raise ConfigError("\n".join([*self.messages[:most], *([f"and {more} more"] if more > 0 else [])]))
