"""Child processes in sessions of their own, which are ended together with everything that they started.

`start_function` runs a function of edgekit in a fresh Python. Such a child ends when its parent ends, for whatever
reason, and ends everything that it started as well. `end_process` does the same from the parent's side, even if the
child itself has exited: processes that it started may outlive it, as a library's forked helper does, and are found by
the child's process group. The number of that group is the child's own only until its exit code is collected, so the
exit code is collected only after the rest has been killed.
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
"""Exit code of a process that was killed, as Linux does when memory runs out. Windows has no signals' exit codes."""
PARENT_GONE = 3
"""Exit code of a child that ended because its parent had exited, if it leads no session."""


def start_function(
    function: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    reads_input: bool = False,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """Run a function in a fresh Python, with this process's search path and in a session of its own.

    Parameters
    ----------
    function : str
        `"package.module:name"`. It is called with `arguments`; what it returns is the exit code, None for 0.
    arguments : sequence of str
        Positional arguments of the function.
    environment : mapping, optional
        Variables that are added to this process's own.
    reads_input : bool
        Whether the function reads its standard input. If not, the child watches its input to notice its parent's end.
    **streams
        `stdout` and `stderr`; see `subprocess.Popen`.
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
    """In the child: call the function that `start_function` named, and exit without waiting for threads."""
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
    """Return the function for `"package.module:name"`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def has_ended(process: subprocess.Popen[bytes], within_s: float = 0.0) -> bool:
    """Whether the process has ended, or ends within this many seconds."""
    deadline, pause_s = time.monotonic() + within_s, 0.0005
    while not _has_ended(process):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            return False
        time.sleep(min(pause_s, remaining_s))
        pause_s = min(2 * pause_s, POLL_S)
    return True


def end_process(process: subprocess.Popen[bytes]) -> int:
    """Kill the process and everything that it started. Returns its exit code, negative for a signal."""
    kill_process(process)
    code = process.wait()
    if process.stdin:
        with suppress(BrokenPipeError):  # its input may be unread
            process.stdin.close()
    return code


def kill_process(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything that it started, without collecting its exit code; call `end_process` later."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # it never led a session, or all of it has gone
            if sys.platform == "win32":  # what the process started goes on there, unless it watches its input
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGSEGV; real-time signals have none of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _leave_with_parent(parent: int | None) -> None:
    """In a thread of the child: wait until the parent ends, then end this process and everything that it started.

    Standard input is a pipe that closes when the parent ends. If it carries requests, the parent's process ID is polled
    instead.
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
