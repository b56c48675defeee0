"""Child processes in sessions of their own, which are ended together with everything that they started.

`start_function` runs a function of edgekit in a fresh Python. Such a child ends when its parent ends, for whatever
reason, and ends everything that it started as well.

`end_process` does the same from the parent's side, even if the child itself has exited. Processes that the child
started may outlive it, as a library's forked helper does, but they are still in the child's process group. The number
of that group may be given to another process once the child's exit code has been collected, so the exit code is
collected only after the whole group has been killed.
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
"""Exit code of a process that was killed, for example by Linux because memory ran out. Windows has no such code."""
PARENT_GONE = 3
"""Exit code of a child that ended because its parent had ended, if the child is not the leader of a session."""


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
        `"package.module:name"`. It is called with `arguments` and returns the exit code, or None for 0.
    arguments : sequence of str
        Positional arguments of the function.
    environment : mapping, optional
        Variables that are added to this process's own.
    reads_input : bool
        Whether the function reads its standard input. If not, the child uses its input to notice that its parent ended.
    **streams
        `stdout` and `stderr`; see `subprocess.Popen`.
    """
    import subprocess  # not at the top: a child does not need it, and importing it takes milliseconds

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


def start_program(command: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start another program in a session of its own. `end_process` ends it with everything that it started.

    If the system has `setpriv` (util-linux), the program also ends when the thread that started it ends, so that
    nothing stays behind when this process is killed. Otherwise it ends when it next writes to a pipe of this process.
    """
    import shutil
    import subprocess

    setpriv = shutil.which("setpriv")
    prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    return subprocess.Popen([*prefix, *command], start_new_session=True, **streams)


def main(parent: int | None) -> NoReturn:
    """Call the function that `start_function` named, and exit without waiting for threads. Runs in the child."""
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    try:
        code = function_named(sys.argv[1])(*sys.argv[2:]) or 0
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # also an interrupt, which would end Python by a signal and look like a crash
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
        with suppress(BrokenPipeError):  # some input may be unread
            process.stdin.close()
    return code


def kill_process(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything that it started, without collecting its exit code; call `end_process` later."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own, or all of it has ended
            if sys.platform == "win32":  # there, processes that it started keep running, unless they watch their input
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGSEGV, or "signal 40" for a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _leave_with_parent(parent: int | None) -> None:
    """Wait until the parent ends, then end this process and everything that it started. Runs in a thread of the child.

    Standard input is a pipe that closes when the parent ends. If the function reads its input, the parent's process ID
    is polled instead.
    """
    if parent is None:
        while os.read(0, 4096):  # not sys.stdin: Python aborts at its end if a thread holds the lock of sys.stdin
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
    except ChildProcessError:  # this process was started with SIGCHLD ignored
        return True
