"""Errors of the device's side. `exit_code` is what `edgerun.pyz` returns. A message names cause, value and fix."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

RECURSION_LIMIT = 3000
"""Calls within calls: three times Python's default, and far fewer than the stack of a process holds."""


class RunnerError(Exception):
    """Base of every error that the runner raises on purpose.

    `lasting` is the message without what changes while the cause stays, such as the time: two errors with the same
    `lasting` report one cause. By default it is the message.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, lasting: str = "") -> None:
        super().__init__(message)
        self.lasting = lasting or message


class BundleError(RunnerError):
    """Not a bundle, malformed, or of a newer format than this runner knows."""

    exit_code = 4


class InputError(RunnerError):
    """A sample, a file or a preprocess step does not fit what the bundle promises."""

    exit_code = 4


class ReleaseError(RunnerError):
    """There is no such release on this device, or it is not in the state that the command needs."""

    exit_code = 4


class BackendError(RunnerError):
    """No interpreter is installed for the target, or it cannot open or run the model."""

    exit_code = 5


class SelftestError(RunnerError):
    """The golden vectors did not come out as recorded."""

    exit_code = 5


class DoctorError(RunnerError):
    """Something was found that keeps a bundle from running here."""

    exit_code = 5


class ResourceError(RunnerError):
    """A file or a folder cannot be written or read, or another command is at work on the same releases."""

    exit_code = 7


class TrustError(RunnerError):
    """A member of a bundle is not what its manifest says, or a file, signature, policy or release is not trusted."""

    exit_code = 8


def keep_exit_code_after_interrupt() -> None:
    """Call after catching KeyboardInterrupt, so that the process ends with its own exit code.

    CPython sets a flag when an interrupt leaves code that `exec` runs from a string, as dataclasses do to make their
    methods. With that flag set, Python ends by SIGINT at exit, although the exception was caught. Every further `exec`
    of a string clears the flag.
    """
    exec("")


@contextmanager
def bounded_recursion() -> Iterator[None]:
    """What nests or calls itself without end raises RecursionError meanwhile, whatever was imported before.

    Converters raise Python's limit as they are imported; the stack then overflows, and the process ends by SIGSEGV.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
