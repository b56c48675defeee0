"""Ensure that only one `watch` runs at a time, and that no program of an earlier one is still running.

Two programs would compete for a port or a camera. The lock of the file `.watch` belongs to the watching process. The
lock of `.program` is inherited by the program and its children, so it lasts as long as they do, even if the watch is
killed.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path

from edgekit.device.releases.home import POLL_S, Home, try_lock
from edgekit.runner.errors import BackendError, ResourceError

BUSY_ERRORS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
STOP_S = 10.0
"""How long a program may take to end after SIGTERM."""


def claim_watch(home: Home, report: Callable[[str], object]) -> int:
    """Become the only watch of a home until this process ends. Returns the descriptor for programs to inherit.

    Raises ResourceError if another watch is running.
    """
    path = home.root / ".watch"
    if not try_lock(_open_lock(path)):
        raise ResourceError(
            f"{home.root}: another `edgerun watch` is running here ({_describe_holders(path)}); stop it first"
        )
    path = home.root / ".program"
    handle = _open_lock(path)
    if not try_lock(handle):
        report(f"stopping the program that an earlier `edgerun watch` left running ({_describe_holders(path)})")
        if not (_end_holders(path, handle, signal.SIGTERM) or _end_holders(path, handle, signal.SIGKILL)):
            raise ResourceError(
                f"{home.root}: the program of an earlier `edgerun watch` is still running "
                f"({_describe_holders(path)}); stop it"
            )
    return handle


def start_program(
    arguments: Sequence[str], environment: Mapping[str, str], inherited: Collection[int]
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own.

    Raises ResourceError if the system lacks memory, processes or file descriptors, and BackendError if the program
    cannot start for another reason.
    """
    try:
        return subprocess.Popen(arguments, env=environment, start_new_session=True, pass_fds=inherited)
    except OSError as error:
        error_class = ResourceError if error.errno in BUSY_ERRORS else BackendError
        raise error_class(f"{arguments[0]}: cannot be started: {error.strerror}") from None


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _end_holders(path: Path, handle: int, signal_number: int) -> bool:
    """Send a signal to the processes that hold a lock. Returns whether the lock becomes free within `STOP_S`."""
    groups = set()
    for number in _holders(path):
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(number))
    for group in groups - {os.getpgrp()}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal_number)
    deadline = time.monotonic() + STOP_S
    while not (is_free := try_lock(handle)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return is_free


def _holders(path: Path) -> list[int]:
    """Return the processes that hold the lock of a file, as far as the kernel shows them."""
    processes, real = [], os.path.realpath(path)
    for each in glob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(each) == real and "FLOCK" in Path(each.replace("/fd/", "/fdinfo/")).read_text(
                encoding="utf-8"
            ):
                processes.append(int(each.split("/")[2]))
    return processes


def _describe_holders(path: Path) -> str:
    return f"process {', '.join(map(str, _holders(path))) or 'unknown'}"
