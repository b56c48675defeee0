"""One writer for a run's folder: a lock that the system lets go of when its holder dies, and that names the holder."""

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
"""How long a lock is waited for at least: `holder` has it for a moment, also in a loop of `edgekit status`."""


@contextmanager
def hold(path: Path, who: str, wait_s: float = 0.0, advice: str = "choose another folder with --out") -> Iterator[None]:
    """Hold the lock file `path` as `who`; ResourceError names its holder if it is not free within `wait_s` seconds.

    `advice`: what to do where nothing can be locked there at all.
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
        remove_quietly(holder)  # a killed predecessor's name must not stand for ours
        with contextlib.suppress(OSError):  # on a full disk the lock still holds, only nameless
            write_json(holder, _about(who))
        yield
    finally:
        remove_quietly(holder)
        lock.release()


def current_holder(path: Path) -> dict[str, Any] | None:
    """Who holds the lock file `path` now: process, host, who, since; None where nobody does.

    A file that a killed holder left behind does not count: its lock ended with its process.
    """
    try:
        found: dict[str, Any] = json.loads(path.with_name(f"{path.name}.holder").read_text(encoding="utf-8"))
        if not {"process", "host", "who", "since"} <= set(found):
            return None
        return None if _is_free(path) else found
    except (OSError, ValueError, TypeError):
        return None


def _is_free(path: Path) -> bool:
    """Whether nobody holds it; a shared lock asks, so that two who look at once do not take each other for a holder."""
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
        found = json.loads(holder.read_text(encoding="utf-8"))
        return f"`{found['who']}` (process {found['process']} on {found['host']}, since {found['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
