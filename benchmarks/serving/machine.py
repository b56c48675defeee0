"""Servers as processes on a core of their own, and the CPU time of a whole tree of processes."""

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


def cores() -> tuple[int, int]:
    """One for the server, one for the load."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise NotRun("this process may use one core alone; the server and its load need one each")
    return found[0], found[1]


def tool(name: str, package: str) -> str:
    """The path of a program; NotRun names Debian's package."""
    path = shutil.which(name)
    if path is None:
        raise NotRun(f"{name} is not installed; run: apt-get install {package}")
    return path


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """The command, held on a core with all that it starts."""
    return [tool("taskset", "util-linux"), "-c", str(core), *command]


def tree(pid: int) -> list[psutil.Process]:
    """A process and all below it that live."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """User and system time of the tree, with that of children that have ended and were waited for."""
    seconds = 0.0
    for each in tree(pid):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(each.cpu_times()[:4])
    return seconds


def ran_s(pid: int) -> float:
    """Time on a core of all living threads of the tree, to the nanosecond; `cpu_s` counts hundredths of a second."""
    nanoseconds = 0
    for each in tree(pid):
        for task in Path(f"/proc/{each.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                nanoseconds += int(task.read_text().split()[0])
    return nanoseconds / 1e9


class Server:
    """A process that serves, on the first core. `with` starts it and waits until it is ready; its end is certain."""

    def __init__(
        self, name: str, command: Sequence[str], environment: dict[str, str], ready: str, may_pause: bool = True
    ) -> None:
        """`ready` is a URL that answers 200, or the text in the log before the address."""
        self.name, self.ready, self.address, self.may_pause = name, ready, "", may_pause
        self.command, self.environment = pinned(cores()[0], command), environment
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
                raise NotRun(f"{self.name} ended with exit code {self.process.returncode}: {self.said()}")
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
        raise NotRun(f"{self.name} was not ready within {READY_S:g} s: {self.said()}")

    def said(self) -> str:
        """The end of its log, on one line."""
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-4:])[-500:]

    @property
    def pid(self) -> int:
        return self.process.pid

    def pause(self) -> None:
        """Stop all of it, where that does no harm, so that it takes nothing while another is measured."""
        if self.may_pause:
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for each in tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def _end(self) -> None:
        self.resume()
        started = tree(self.pid)
        self.process.terminate()
        processes.has_ended(self.process, 10)
        processes.end_process(self.process)
        for each in started:  # workers lead sessions of their own
            with suppress(psutil.NoSuchProcess):
                each.kill()


def environment(**more: str) -> dict[str, str]:
    """For servers of this tree: one thread of BLAS, and choices and curves measured in this run alone."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "XDG_CACHE_HOME": str(HOME / "cache")}
    return {**kept, **own, **more}


def python(*words: str) -> list[str]:
    """A command of this Python."""
    return [sys.executable, "-P", *words]
