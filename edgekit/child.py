"""A process that works for this one: it ends when its parent does, and its parent ends it, with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def leave_with_parent() -> None:
    """In the child: watch standard input, a pipe that nobody writes to; it closes when the parent ends, however."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def end(process: subprocess.Popen[bytes]) -> None:
    """In the parent: kill what still runs of a child that leads a session of its own."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin:
        process.stdin.close()
