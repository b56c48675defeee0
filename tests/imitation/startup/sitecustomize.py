"""Show edgekit the standard library and the file system of Windows or macOS, in a Python that runs on Linux.

Python imports this module at its start when the folder is on PYTHONPATH; `EDGEKIT_IMITATE` names the system. Only what
edgekit itself imports, opens and renames is changed. Other libraries keep the real system, because their own support
of Windows and macOS is not what the tests are about. Native code, consoles, paths with drives and the behaviour of the
real kernels are not imitated.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Mapping
from typing import Any

MODULES = {
    "windows": {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"} | {"litert_torch", "uvloop"},
    "macos": set[str](),
}
"""Modules that the system does not have: of the standard library, and packages without a wheel for it."""
NAMES = {
    "windows": {
        "os": """O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_SYNC O_TMPFILE P_PID P_PGID
            WEXITED WNOHANG WNOWAIT chown confstr copy_file_range eventfd fchdir fchmod fchown fdatasync fork forkpty
            fstatvfs getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getrandom getsid getuid
            getxattr killpg lchown memfd_create mkfifo mknod nice openpty pidfd_open pipe2 posix_fadvise posix_fallocate
            posix_spawn pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity
            sched_yield sendfile set_blocking setpgid setpriority setsid setuid setxattr splice statvfs sync sysconf
            tcgetpgrp ttyname uname wait wait3 wait4 waitid writev""",
        "select": "epoll poll",
        "signal": """SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2
            SIGXCPU SIGXFSZ alarm pause pthread_kill pthread_sigmask setitimer sigwait""",
        "socket": "AF_UNIX SOCK_CLOEXEC SOCK_NONBLOCK SO_REUSEPORT socketpair",
        "time": "clock_gettime tzset",
    },
    "macos": {
        "os": """O_PATH O_TMPFILE copy_file_range eventfd fdatasync getrandom getxattr memfd_create pidfd_open pipe2
            posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity setxattr splice waitid""",
        "select": "epoll",
        "signal": "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
        "socket": "AF_NETLINK AF_PACKET SOCK_CLOEXEC SOCK_NONBLOCK",
    },
}
"""Names that its modules lack, from the "Availability" notes of Python's documentation."""
VALUES: dict[str, dict[str, dict[str, Any]]] = {
    "windows": {
        "os": {"name": "nt"},
        "platform": {"system": lambda: "Windows", "machine": lambda: "AMD64"},
        "sys": {"platform": "win32"},
    },
    "macos": {
        "platform": {"system": lambda: "Darwin", "machine": lambda: "arm64"},
        "sys": {"platform": "darwin"},
    },
}
"""What names of its modules are there."""
FOLDERS = {"windows": ("/proc", "/sys", "/etc", "/dev/dri", "/dev/accel"), "macos": ("/proc", "/sys")}
HELPERS = {"contextlib", "genericpath", "glob", "os", "pathlib", "posixpath", "shutil"}
"""Modules of the standard library that open or rename files for their caller."""


class View(types.ModuleType):
    """A module with some of its names missing and others changed."""

    def __init__(self, real: types.ModuleType, missing: set[str], changed: Mapping[str, Any]) -> None:
        super().__init__(real.__name__)
        vars(self).pop("__doc__")
        vars(self).update(_real=real, _missing=missing, _changed=changed)

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return self._changed[name] if name in self._changed else getattr(self._real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)


class WindowsPopen(subprocess.Popen[Any]):
    """Refuses what Windows refuses."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if options.get("pass_fds") or options.get("preexec_fn"):
            raise ValueError("pass_fds and preexec_fn are not supported on Windows")
        super().__init__(*arguments, **options)


def windows_kill(process: int, number: int) -> None:
    if number == 0:
        raise AssertionError("on Windows, os.kill(process, 0) sends Ctrl-C")
    os.kill(process, number)


def windows_fsync(handle: int) -> None:
    if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor: on Windows, only a file open for writing can be synced")
    os.fsync(handle)


def windows_rename(source: Any, target: Any) -> None:
    if os.path.exists(target):
        raise FileExistsError(errno.EEXIST, "on Windows, rename never replaces", target)
    os.rename(source, target)


def views(system: str) -> dict[str, View]:
    """What edgekit gets where it imports one of these modules."""
    changed = {name: dict(values) for name, values in VALUES[system].items()}
    if system == "windows":
        changed["os"].update(kill=windows_kill, fsync=windows_fsync, rename=windows_rename)
        changed["subprocess"] = {"Popen": WindowsPopen}
    names = {name: set(missing.split()) for name, missing in NAMES[system].items()}
    return {
        name: View(__import__(name), names.get(name, set()), changed.get(name, {}))
        for name in sorted(names.keys() | changed.keys())
    }


def is_edgekit(name: object) -> bool:
    return isinstance(name, str) and (name == "edgekit" or name.startswith("edgekit."))


def called_by_edgekit() -> bool:
    """Whether the nearest caller, apart from helpers of the standard library, is a module of edgekit."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and name.partition(".")[0] not in HELPERS:
            return is_edgekit(name)
        frame = frame.f_back  # type: ignore[assignment]
    return False


def is_hidden(path: object, folders: tuple[str, ...]) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    text = os.path.normpath(os.fsdecode(path))
    return text.startswith(tuple(f"{folder}/" for folder in folders)) or text in folders


def is_open(path: object) -> bool:
    """Whether this process has a file open."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    real, where = os.path.realpath(os.fsdecode(path)), "/proc/self/fd"
    for number in os.listdir(where):
        try:
            if os.readlink(f"{where}/{number}") == real:
                return True
        except OSError:
            continue
    return False


def imitate(system: str) -> None:
    seen, real_import, folders = views(system), builtins.__import__, FOLDERS[system]
    busy = False

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and globals is not None and is_edgekit(globals.get("__name__")):
            if name in MODULES[system]:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in seen:
                return seen[name]
        return real_import(name, globals, locals, fromlist, level)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if (
            busy
            or event not in ("open", "os.listdir", "os.scandir", "os.rename", "os.remove")
            or not called_by_edgekit()
        ):
            return
        busy = True
        try:
            if event in ("open", "os.listdir", "os.scandir"):
                if is_hidden(arguments[0], folders):
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory", arguments[0])
                if system == "windows" and event == "open" and arguments[1] is None and os.path.isdir(arguments[0]):
                    raise PermissionError(errno.EACCES, "on Windows, no folder can be opened", arguments[0])
            elif system == "windows":
                for path in arguments[:2] if event == "os.rename" else arguments[:1]:
                    if is_open(path):
                        raise PermissionError(errno.EACCES, "on Windows, an open file stays where it is", path)
        finally:
            busy = False

    def hiding(real: Any) -> Any:
        def found(path: Any, *arguments: Any, **options: Any) -> Any:
            if not busy and is_hidden(path, folders) and called_by_edgekit():
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            return real(path, *arguments, **options)

        return found

    for name in ("stat", "lstat", "readlink"):
        setattr(os, name, hiding(getattr(os, name)))
    builtins.__import__ = imported
    sys.addaudithook(audit)
    if system == "windows":
        warnings.filterwarnings("ignore", category=builtins.EncodingWarning)
        warnings.filterwarnings("error", category=builtins.EncodingWarning, module=r"edgekit\.")


if os.environ.get("EDGEKIT_IMITATE"):
    imitate(os.environ["EDGEKIT_IMITATE"])
