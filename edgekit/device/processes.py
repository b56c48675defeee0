"""Child processes: started in a session of their own, and ended with all that they started.

`start` runs a function of edgekit in a fresh Python. Such a child ends when its parent does, whatever ended the parent,
and takes with it everything that it started. `end` does the same from the parent's side, also where the child itself
has gone: what it started may outlive it, as a library's forked helper does, and is found by the child's number. That
number is its own only until somebody asks for its exit code, so nothing here does before the rest was killed.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import edgekit

if TYPE_CHECKING:
    import subprocess

POLL_S = 0.05
PARENT_POLL_S = 0.5
KILLED = -getattr(signal, "SIGKILL", 9)
"""Exit code of a process that was killed, as Linux does when memory runs out. Windows has no exit codes of signals."""
PARENT_GONE = 3
"""Exit code of a child that ended because its parent had gone, where it leads no session."""


def start_function(
    function: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    reads_input: bool = False,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Run a function in a fresh Python that has this process's search path and leads a session of its own.

    Parameters
    ----------
    function
        `"package.module:name"`. It is called with `arguments`; what it returns is the exit code, 0 for None.
    environment
        Added to this process's own.
    reads_input
        Whether the function reads its standard input. If not, the child watches the input to see its parent's end.
    streams
        `stdout`, `stderr`: see `subprocess.Popen`.
    """
    import subprocess  # here, so that a child does not spend milliseconds on importing it

    home = os.path.dirname(os.path.dirname(os.path.abspath(edgekit.__file__)))  # a folder, or edgerun.pyz itself
    paths = [os.path.abspath(entry) for entry in sys.path]
    paths = paths if home in paths else [home, *paths]
    parent = os.getpid() if reads_input else None
    code = f"import sys; sys.path[:] = {paths!r}; from edgekit.device.processes import main; main({parent})"
    return subprocess.Popen(
        [sys.executable, "-c", code, function, *arguments],
        stdin=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
        **streams,
    )


def main(parent: int | None) -> NoReturn:
    """In the child: call the function that `start` named, and end without waiting for threads and frameworks."""
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    try:
        code = function_named(sys.argv[1])(*sys.argv[2:]) or 0
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # an interrupt too, which would end Python by a signal and look like a crash
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def function_named(name: str) -> Any:
    """The function behind `"package.module:name"`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def has_ended(process: subprocess.Popen[bytes], within_s: float = 0.0) -> bool:
    """Whether it has ended, or does so within so many seconds."""
    deadline, pause_s = time.monotonic() + within_s, 0.0005
    while not _has_ended(process):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, POLL_S)
    return True


def end_process(process: subprocess.Popen[bytes]) -> int:
    """Kill what still runs of it and of all that it started; its exit code, a signal's as a negative number."""
    kill_process(process)
    code = process.wait()
    if process.stdin:
        with suppress(BrokenPipeError):  # its input may be unread
            process.stdin.close()
    return code


def kill_process(process: subprocess.Popen[bytes]) -> None:
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


def _leave_with_parent(parent: int | None) -> None:
    """In a thread of the child: wait for the parent's end, then end this process with all that it started.

    Standard input is a pipe that closes when the parent ends. Where it carries requests, the number of the parent is
    looked at instead.
    """
    if parent is None:
        while os.read(0, 4096):  # sys.stdin's own lock, held by a thread, aborts Python when the child ends by itself
            pass
    else:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(PARENT_GONE)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if sys.platform == "win32" or process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None  # macOS has no waitid before Python 3.13
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # whoever started this ignores SIGCHLD
        return True
