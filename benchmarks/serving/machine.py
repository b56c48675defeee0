"""Servers as processes on a core of their own, and the CPU time of a tree of processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.harness import BUILD, ROOT, NotRun
from edgekit.device import processes

HOME = BUILD / "serving"
READY_S = 120.0


def server_and_load_cores() -> tuple[int, int]:
    """Return one core for the server and one for the load."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise NotRun("this process may use only one core, but the server and its load need one each")
    return available[0], available[1]


def tool_path(name: str, package: str) -> str:
    """Return the path of a program.

    Raises
    ------
    NotRun
        It is not installed. The message names Debian's package.
    """
    path = shutil.which(name)
    if path is None:
        raise NotRun(f"{name} is not installed; run: apt-get install {package}")
    return path


def pinned_command(core: int, command: Sequence[str]) -> list[str]:
    """Return the command, pinned to a core together with all that it starts."""
    return [tool_path("taskset", "util-linux"), "-c", str(core), *command]


def process_tree(pid: int) -> list[psutil.Process]:
    """Return a process and its living descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """Return the user and system time of the tree, including children that have ended and were waited for."""
    seconds = 0.0
    for process in process_tree(pid):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def thread_time_s(pid: int) -> float:
    """Return the time that all living threads of the tree have spent on a core, with a resolution of nanoseconds.

    `cpu_s` has a resolution of 10 ms.
    """
    nanoseconds = 0
    for process in process_tree(pid):
        for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                nanoseconds += int(task.read_text().split()[0])
    return nanoseconds / 1e9


class Server:
    """A server process on the first core. `with` starts it, waits until it is ready and always ends it."""

    def __init__(
        self, name: str, command: Sequence[str], environment: dict[str, str], ready: str, may_pause: bool = True
    ) -> None:
        """`ready` is a URL that answers 200 when the server is ready, or the text before the address in its log."""
        self.name, self.ready, self.address, self.may_pause = name, ready, "", may_pause
        self.command, self.environment = pinned_command(server_and_load_cores()[0], command), environment
        self.log = HOME / "logs" / f"{name}.log"

    def __enter__(self) -> Server:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as stream:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=self.environment,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotRun(f"{self.name} ended with exit code {self.process.returncode}: {self.log_tail()}")
            if self.ready.startswith("http"):
                with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(self.ready, timeout=2):
                    self.address = "/".join(self.ready.split("/")[:3])
                    return
            else:
                for line in self.log.read_text(errors="replace").splitlines():
                    if self.ready in line:
                        self.address = line.split(self.ready, 1)[1].split(": ")[0].strip()
                        return
            time.sleep(0.05)
        raise NotRun(f"{self.name} was not ready within {READY_S:g} s: {self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of its log on one line."""
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-4:])[-500:]

    @property
    def pid(self) -> int:
        return self.process.pid

    def pause(self) -> None:
        """Stop all its processes, if that is harmless, so that they use no CPU while another server is measured."""
        if self.may_pause:
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue its processes."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in process_tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _end(self) -> None:
        self.resume()
        processes_of_server = process_tree(self.pid)
        self.process.terminate()
        processes.has_ended(self.process, 10)
        processes.end_process(self.process)
        for process in processes_of_server:  # workers have sessions of their own
            with suppress(psutil.NoSuchProcess):
                process.kill()


def server_environment(**extra: str) -> dict[str, str]:
    """Return the environment for edgekit's servers: one BLAS thread, and interpreters chosen in this run."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    fixed = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "XDG_CACHE_HOME": str(HOME / "cache")}
    return {**inherited, **fixed, **extra}


def python_command(*arguments: str) -> list[str]:
    """Return a command of this Python."""
    return [sys.executable, "-P", *arguments]
