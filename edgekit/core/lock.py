"""A lock that allows only one process at a time to write to a run's folder, and that names its holder.

The operating system releases the lock when its holder dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from edgekit.core.errors import ResourceError
from edgekit.core.hashing import write_json
from edgekit.runner.files import can_lock, make_folder, remove_quietly

MIN_WAIT_S = 0.5
"""Shortest time that `hold` waits for a lock.

Even a free lock may be taken for a moment, because `current_holder` takes it to see whether it is free, for example
when `edgekit status` is called in a loop.
"""


@contextmanager
def hold(path: Path, who: str, wait_s: float = 0.0, advice: str = "choose another folder with --out") -> Iterator[None]:
    """Hold the lock file `path` in the name of `who`.

    Parameters
    ----------
    path
        The lock file.
    who
        The command that holds the lock, as messages show it.
    wait_s
        How long to wait for the lock, seconds.
    advice
        What to do if nothing can be locked there at all.

    Raises
    ------
    ResourceError
        The lock was not released in time (the message names its holder), or the file cannot be locked.
    """
    from filelock import FileLock, Timeout

    holder = path.with_name(f"{path.name}.holder")
    lock = FileLock(path)
    try:
        make_folder(path.parent)
        lock.acquire(timeout=max(wait_s, MIN_WAIT_S), poll_interval=0.02)
    except Timeout:
        raise ResourceError(f"{path.parent}: in use by {_describe_holder(holder)}; wait for it, or stop it") from None
    except (OSError, NotImplementedError) as error:
        raise ResourceError(
            f"{path}: cannot be locked ({getattr(error, 'strerror', None) or error}); {advice}"
        ) from None
    try:
        remove_quietly(holder)  # left by a process that was killed
        with contextlib.suppress(OSError):  # on a full disk, the lock still works but does not name its holder
            write_json(holder, _about(who))
        yield
    finally:
        remove_quietly(holder)
        lock.release()


def current_holder(path: Path) -> dict[str, Any] | None:
    """Return the holder of the lock file `path` (process, host, who, since), or None if there is none.

    A file that a killed holder left does not count, because the lock ended with the process.
    """
    try:
        holder: dict[str, Any] = json.loads(path.with_name(f"{path.name}.holder").read_text(encoding="utf-8"))
        if not {"process", "host", "who", "since"} <= set(holder):
            return None
        return None if _is_free(path) else holder
    except (OSError, ValueError, TypeError):
        return None


def _is_free(path: Path) -> bool:
    """Return whether nobody holds the lock.

    This takes a shared lock, so that two readers do not mistake each other for a holder.
    """
    if sys.platform == "win32":
        from filelock import FileLock, Timeout

        try:
            with FileLock(path).acquire(timeout=0):
                return True
        except Timeout:
            return False
    import fcntl

    return can_lock(path, fcntl.LOCK_SH)


def _about(who: str) -> dict[str, object]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "who": who,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _describe_holder(holder: Path) -> str:
    try:
        fields = json.loads(holder.read_text(encoding="utf-8"))
        return f"`{fields['who']}` (process {fields['process']} on {fields['host']}, since {fields['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
