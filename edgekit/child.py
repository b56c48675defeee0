"""A process that works for this one: it ends when its parent does, and its parent ends it, with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def call(module: str, arguments: list[str], log: Path, timeout_s: float, environment: Mapping[str, str]) -> str | None:
    """Run `python -m MODULE ARGUMENTS` in a fresh process that ends with this one; why it failed in a line, or None.

    What it says goes to `log`.
    """
    with open(log, "wb") as stream:
        process = start(module, arguments, {"stdout": stream, "stderr": subprocess.STDOUT}, environment)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"not finished after {timeout_s:g} s"
        finally:
            end(process)
    if process.returncode < 0:
        return f"crashed ({signal.Signals(-process.returncode).name})"
    if process.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return "".join(last)[:300] or f"ended with exit code {process.returncode}"
    return None


def start(
    module: str, arguments: list[str], streams: Mapping[str, Any], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """`python -m MODULE ARGUMENTS`, in a session of its own, with this process's search path; `end` ends it."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        env={**os.environ, **environment, "PYTHONPATH": path},
        start_new_session=True,
        **streams,
    )
