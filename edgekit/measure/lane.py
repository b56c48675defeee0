"""The lane of a machine: what is measured there runs alone, beside no training, no conversion, no other measuring.

`EDGEKIT_LANE` names a folder for the locks; without it nothing here does anything. Whoever computes holds the lane
shared, whoever measures holds it alone. The locks are the system's own (flock), so a process that dies holds nothing.
Windows has no such locks, so there nothing waits. A process counts as one holder: its threads share what it holds.
Whoever waits for another process that measures must not compute meanwhile, or both wait for ever.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.core import progress
from edgekit.core.errors import ResourceError

HoldKind = Literal["computing", "measuring"]

FOLDER_VARIABLE = "EDGEKIT_LANE"
"""Environment variable: the folder of the lane of this machine."""
TURNSTILE, LANE = "turnstile.lock", "lane.lock"
JOURNAL = "lane.jsonl"
WAITING_MESSAGES: dict[HoldKind, str] = {
    "computing": "waiting until nobody measures on this machine",
    "measuring": "waiting until nobody computes on this machine",
}
"""What progress shows meanwhile."""


@dataclass(frozen=True)
class Hold:
    """One hold as `lane.jsonl` has it, in nanoseconds of the machine's monotonic clock.

    `ended_ns` is None while it lasts, and for ever where its process was killed.
    """

    kind: HoldKind
    process: int
    began_ns: int
    ended_ns: int | None


def machine_folder() -> Path:
    """The folder that all processes of this user on this machine share, for whoever sets `EDGEKIT_LANE`.

    Not below TMPDIR where there is `/tmp`: batch systems give each job a TMPDIR of its own.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    shared = Path("/tmp")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / f"edgekit-lane-{user}"


@contextmanager
def computing() -> Iterator[None]:
    """Train or convert: beside others that do, never while somebody measures."""
    with _held("computing"):
        yield


@contextmanager
def measuring() -> Iterator[None]:
    """Measure alone. Within `computing` that hold is given up meanwhile, and taken back at the end.

    Whoever begins to compute after this has begun to wait comes after it.
    """
    with _held("measuring"):
        yield


def read_holds(folder: Path) -> list[Hold]:
    """What the lane in `folder` was held for, in the order in which the holds began."""
    found: dict[tuple[int, int], Hold] = {}
    path = folder / JOURNAL
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            hold = Hold(row["kind"], row["process"], row["began_ns"], row.get("ended_ns"))
        except (ValueError, KeyError, TypeError):  # torn by a kill or a full disk
            continue
        found[hold.process, hold.began_ns] = hold
    return sorted(found.values(), key=lambda hold: hold.began_ns)


class _ProcessHold:
    """What this process holds: how deep its contexts are nested, and the open lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth: dict[HoldKind, int] = {"computing": 0, "measuring": 0}
        self.handle: int | None = None
        self.hold: tuple[Path, HoldKind, int] | None = None

    def forked(self) -> None:
        """In a forked child: it holds nothing, and its copy of the lock must not outlive its parent's."""
        if self.handle is not None:
            os.close(self.handle)
        self.__init__()  # type: ignore[misc]

    def become(self, kind: HoldKind | None) -> None:
        """Hold the lane as `kind`, or not at all; waits for it."""
        if self.hold is not None and self.hold[1] == kind:
            return
        self._let_go()
        where = os.environ.get(FOLDER_VARIABLE)
        if kind is not None and where and sys.platform != "win32":
            self._take(Path(where), kind)

    def _take(self, folder: Path, kind: HoldKind) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            turnstile, handle = _open(folder / TURNSTILE), _open(folder / LANE)
        except OSError as error:
            raise ResourceError(
                f"{FOLDER_VARIABLE}={folder}: no lane there ({error.strerror}); name a folder that can be written"
            ) from None
        try:
            _lock(turnstile, handle, kind)
        except BaseException:
            os.close(handle)
            raise
        finally:
            os.close(turnstile)
        self.handle, self.hold = handle, (folder, kind, time.monotonic_ns())
        _record(*self.hold)

    def _let_go(self) -> None:
        if sys.platform == "win32" or self.handle is None or self.hold is None:
            return
        import fcntl

        handle, hold = self.handle, self.hold
        self.handle = self.hold = None
        _record(*hold, ended_ns=time.monotonic_ns())  # before the next holder's beginning
        fcntl.flock(handle, fcntl.LOCK_UN)  # for all copies of it, also a forked child's
        os.close(handle)


_process = _ProcessHold()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)


@contextmanager
def _held(kind: HoldKind) -> Iterator[None]:
    _enter(kind, 1)
    try:
        yield
    finally:
        _enter(kind, -1)


def _enter(kind: HoldKind, step: int) -> None:
    with _process.lock:
        depth = _process.depth
        depth[kind] = max(0, depth[kind] + step)  # a forked child leaves what its parent entered
        wanted: HoldKind | None = "measuring" if depth["measuring"] else "computing" if depth["computing"] else None
        try:
            _process.become(wanted)
        except BaseException:
            if step > 0:
                depth[kind] -= step
            raise


def _lock(turnstile: int, handle: int, kind: HoldKind) -> None:
    if sys.platform != "win32":
        import fcntl

        operation = fcntl.LOCK_EX if kind == "measuring" else fcntl.LOCK_SH
        try:
            fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
        except BlockingIOError:  # it may last as long as a training, so it is shown
            with progress.step(WAITING_MESSAGES[kind]):
                fcntl.flock(turnstile, fcntl.LOCK_EX)  # held by one who waits, so that nobody passes a measurer
                fcntl.flock(handle, operation)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _record(folder: Path, kind: HoldKind, began_ns: int, ended_ns: int | None = None) -> None:
    row = {"kind": kind, "process": os.getpid(), "began_ns": began_ns}
    if ended_ns is not None:
        row["ended_ns"] = ended_ns
    try:
        handle = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, json.dumps(row).encode() + b"\n")  # one write, so lines of several processes stay whole
        finally:
            os.close(handle)
    except OSError:  # a full disk: the lane still holds, only unrecorded
        pass


@contextmanager
def use_machine_folder() -> Iterator[str]:
    """Name a lane in the environment, unless there is one; the folder."""
    before = os.environ.get(FOLDER_VARIABLE)
    where = os.environ[FOLDER_VARIABLE] = before or str(machine_folder())
    try:
        yield where
    finally:
        if before is None:
            os.environ.pop(FOLDER_VARIABLE, None)
        else:
            os.environ[FOLDER_VARIABLE] = before
