"""What a run needs of its folder and of its process: room to write, no litter, a clean end by a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from edgekit.core.errors import NO_RESOURCES, ResourceError
from edgekit.report import html
from edgekit.runner.files import make_folder


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends like Ctrl-C, with another exit code."""


def writable(folder: Path) -> None:
    """Make the folder; ResourceError where nothing can be written there."""
    probe = folder / f".writable.{os.getpid()}.tmp"
    try:
        make_folder(folder / "notebooks")
        probe.write_bytes(b"\0")
        probe.unlink()
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        raise ResourceError(
            f"{folder}: cannot write here ({error.strerror}); choose another folder with --out"
        ) from None


def tidy(folder: Path) -> None:
    """Remove half-written files of a killed process; the lock shows that nobody is writing them now."""
    patterns = (".*.tmp", "notebooks/.*.tmp", "notebooks/.*.partial.ipynb", f"{html.BESIDE}/.*.tmp")
    for left in [path for pattern in patterns for path in folder.glob(pattern)]:
        left.unlink(missing_ok=True)


@contextmanager
def lack_of_resources(folder: Path) -> Iterator[None]:
    """Turn a refusal of the disk between two notebooks into a ResourceError."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_RESOURCES:
            raise
        raise ResourceError(
            f"{error.filename or folder}: {error.strerror or error}; free space or choose another folder with --out"
        ) from None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """`kill` ends a run as Ctrl-C does: the kernel is stopped, the lock given back, what is sealed stays."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
