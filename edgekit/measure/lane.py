"""The lane of a machine, a lock that lets a measurement run without any training, conversion or other measurement.

`EDGEKIT_LANE` names the folder of the locks. Without this variable, nothing here has any effect. Processes that compute
hold the lane together, and a process that measures holds it alone. The locks belong to the operating system (flock), so
a process that dies releases them. Windows has no such locks, so nothing waits there. A process counts as one holder,
and its threads share its hold. A process must not hold the lane while it waits for another process that measures, or
both would wait for ever.
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
"""Environment variable that names the folder of this machine's lane."""
TURNSTILE, LANE = "turnstile.lock", "lane.lock"
JOURNAL = "lane.jsonl"
WAITING_MESSAGES: dict[HoldKind, str] = {
    "computing": "waiting until no measurement runs on this machine",
    "measuring": "waiting until no other computation runs on this machine",
}
"""The progress message while a process waits."""


@dataclass(frozen=True)
class Hold:
    """One hold as recorded in `lane.jsonl`, in nanoseconds of the machine's monotonic clock.

    `ended_ns` is None while the hold lasts, and stays None if its process was killed.
    """

    kind: HoldKind
    process: int
    began_ns: int
    ended_ns: int | None


def machine_folder() -> Path:
    """The default folder for `EDGEKIT_LANE`, shared by all processes of this user on this machine.

    It is not below TMPDIR if there is a `/tmp`, because batch systems give each job a TMPDIR of its own.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    shared = Path("/tmp")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / f"edgekit-lane-{user}"


@contextmanager
def computing() -> Iterator[None]:
    """Hold the lane while training or converting. Others may compute at the same time, but nobody can measure."""
    with _hold("computing"):
        yield


@contextmanager
def measuring() -> Iterator[None]:
    """Hold the lane alone while measuring.

    Within `computing`, the hold of `computing` is released for the time of the measurement and taken again at the end.
    While this process waits for its turn, any process that comes later in order to compute has to wait behind it.
    """
    with _hold("measuring"):
        yield


def read_holds(folder: Path) -> list[Hold]:
    """Read the holds recorded in the lane `folder`, in the order in which they started."""
    holds: dict[tuple[int, int], Hold] = {}
    path = folder / JOURNAL
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            hold = Hold(row["kind"], row["process"], row["began_ns"], row.get("ended_ns"))
        except (ValueError, KeyError, TypeError):  # incomplete because of a kill or a full disk
            continue
        holds[hold.process, hold.began_ns] = hold
    return sorted(holds.values(), key=lambda hold: hold.began_ns)


class _ProcessHold:
    """The hold of this process: how deeply its contexts are nested, and the open lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth: dict[HoldKind, int] = {"computing": 0, "measuring": 0}
        self.handle: int | None = None
        self.hold: tuple[Path, HoldKind, int] | None = None

    def reset_after_fork(self) -> None:
        """Close the inherited lock in a forked child. Otherwise the child would still hold it after its parent died."""
        if self.handle is not None:
            os.close(self.handle)
        self.__init__()  # type: ignore[misc]

    def hold_as(self, kind: HoldKind | None) -> None:
        """Wait until this process holds the lane as `kind`, or release it if `kind` is None."""
        if self.hold is not None and self.hold[1] == kind:
            return
        self._release()
        folder = os.environ.get(FOLDER_VARIABLE)
        if kind is not None and folder and sys.platform != "win32":
            self._acquire(Path(folder), kind)

    def _acquire(self, folder: Path, kind: HoldKind) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            turnstile, handle = _open_lock(folder / TURNSTILE), _open_lock(folder / LANE)
        except OSError as error:
            raise ResourceError(
                f"{FOLDER_VARIABLE}={folder}: cannot create a lane there ({error.strerror}); name a writable folder"
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

    def _release(self) -> None:
        if sys.platform == "win32" or self.handle is None or self.hold is None:
            return
        import fcntl

        handle, hold = self.handle, self.hold
        self.handle = self.hold = None
        _record(*hold, ended_ns=time.monotonic_ns())  # before the next holder records its start
        fcntl.flock(handle, fcntl.LOCK_UN)  # releases all copies, including those of forked children
        os.close(handle)


_process = _ProcessHold()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.reset_after_fork)


@contextmanager
def _hold(kind: HoldKind) -> Iterator[None]:
    _change_depth(kind, 1)
    try:
        yield
    finally:
        _change_depth(kind, -1)


def _change_depth(kind: HoldKind, change: int) -> None:
    with _process.lock:
        depth = _process.depth
        depth[kind] = max(0, depth[kind] + change)  # a forked child exits contexts that its parent entered
        kind_to_hold: HoldKind | None = (
            "measuring" if depth["measuring"] else "computing" if depth["computing"] else None
        )
        try:
            _process.hold_as(kind_to_hold)
        except BaseException:
            if change > 0:
                depth[kind] -= change
            raise


def _lock(turnstile: int, handle: int, kind: HoldKind) -> None:
    if sys.platform != "win32":
        import fcntl

        operation = fcntl.LOCK_EX if kind == "measuring" else fcntl.LOCK_SH
        try:
            fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
        except BlockingIOError:  # this can take as long as a training, so progress shows it
            with progress.step(WAITING_MESSAGES[kind]):
                fcntl.flock(turnstile, fcntl.LOCK_EX)  # held while waiting, so that nobody overtakes a measurement
                fcntl.flock(handle, operation)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _record(folder: Path, kind: HoldKind, began_ns: int, ended_ns: int | None = None) -> None:
    row = {"kind": kind, "process": os.getpid(), "began_ns": began_ns}
    if ended_ns is not None:
        row["ended_ns"] = ended_ns
    try:
        handle = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(
                handle, json.dumps(row).encode() + b"\n"
            )  # a single write, so that lines of several processes never mix
        finally:
            os.close(handle)
    except OSError:  # a full disk: the lock still holds, it is just not recorded
        pass


@contextmanager
def use_machine_folder() -> Iterator[str]:
    """Set `EDGEKIT_LANE` to the folder of this machine unless it is set already, and return the folder."""
    previous = os.environ.get(FOLDER_VARIABLE)
    folder = os.environ[FOLDER_VARIABLE] = previous or str(machine_folder())
    try:
        yield folder
    finally:
        if previous is None:
            os.environ.pop(FOLDER_VARIABLE, None)
        else:
            os.environ[FOLDER_VARIABLE] = previous
