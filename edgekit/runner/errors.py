"""Errors of the runner. `exit_code` is what `edgerun.pyz` returns. A message names the cause, the value and the fix."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

RECURSION_LIMIT = 3000
"""Three times Python's default, and far less than the stack of a process can hold."""


class RunnerError(Exception):
    """Base class of every error that the runner raises on purpose.

    `lasting` is the message without the parts that change while the cause stays the same, such as a time, so that two
    errors with the same `lasting` report the same cause. By default it is the message.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, lasting: str = "") -> None:
        super().__init__(message)
        self.lasting = lasting or message


class BundleError(RunnerError):
    """The file is not a bundle, is malformed, or has a newer format than this runner supports."""

    exit_code = 4


class InputError(RunnerError):
    """A sample, a file or a preprocess step does not match what the bundle declares."""

    exit_code = 4


class ReleaseError(RunnerError):
    """The device has no such release, or it is not in the state that the command needs."""

    exit_code = 4


class BackendError(RunnerError):
    """No interpreter is installed for the target, or it cannot open or run the model."""

    exit_code = 5


class SelftestError(RunnerError):
    """The golden samples did not give the recorded outputs."""

    exit_code = 5


class DoctorError(RunnerError):
    """`edgerun doctor` found something that keeps a bundle from running on this device."""

    exit_code = 5


class ResourceError(RunnerError):
    """A file or folder cannot be read or written, or another command is working on the same releases."""

    exit_code = 7


class TrustError(RunnerError):
    """A bundle's member differs from its manifest, or a file, signature, policy or release is not trusted."""

    exit_code = 8


def keep_exit_code_after_interrupt() -> None:
    """Let the process end with its own exit code. Call it after catching KeyboardInterrupt.

    CPython sets a flag when an interrupt ends code that `exec` runs from a string; dataclasses create their methods
    with such code. With that flag set, Python ends with SIGINT at exit even though the exception was caught. Every
    further `exec` of a string clears the flag.
    """
    exec("")


@contextmanager
def bounded_recursion() -> Iterator[None]:
    """Make endless nesting or recursion raise RecursionError inside the block, whatever was imported before.

    Converters increase Python's recursion limit when they are imported. Without this, the stack would overflow and the
    process would end with SIGSEGV.
    """
    previous_limit = sys.getrecursionlimit()
    sys.setrecursionlimit(min(previous_limit, RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(previous_limit)
