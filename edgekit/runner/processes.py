"""A process that leads a session of its own: whether it has ended, and its end with all that it started.

What it started may outlive it, as a library's forked helper does, and is found by its number. That number is its own
only until somebody asks for its exit code, so nothing here does before the rest was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

POLL_S = 0.05
KILLED = -getattr(signal, "SIGKILL", 9)
"""Exit code of a process that was killed, as Linux does when memory runs out. Windows has no exit codes of signals."""


def ended(process: subprocess.Popen[bytes], within_s: float = 0.0) -> bool:
    """Whether it has ended, or does so within so many seconds."""
    deadline, pause_s = time.monotonic() + within_s, 0.0005
    while not _has_ended(process):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, POLL_S)
    return True


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill what still runs of it and of all that it started; its exit code, a signal's as a negative number."""
    kill(process)
    return process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    """The same without asking for its exit code: `end` is still to come."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # it never led a session, or all of it has gone
            if sys.platform == "win32":  # what the process started goes on there, unless it watches its input
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)


def signal_name(number: int) -> str:
    """SIGSEGV and the like; the real-time ones have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def leave() -> None:
    """In the process itself: end it, with all that it started."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(3)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if sys.platform == "win32" or process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None  # macOS has no waitid before Python 3.13
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # whoever started this ignores SIGCHLD
        return True
