"""A process that works for this one: it ends when its parent does, and its parent ends it, with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.runner import processes

POLL_S = 0.05
OPENMP_WAIT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
"""OpenMP threads sleep while they wait for one another. By default they spin for milliseconds, and beside another
program a training then takes several times as long, because a spinning thread keeps the core that its peer needs."""
ROUTINE = re.compile(
    r"^\s|^Traceback|^File |^(INFO|DEBUG|WARNING|I\d{4}|W\d{4})\b|Warning:|^\s*$|it/s\]|^\(\d+:\d+\) \["
)


@dataclass(frozen=True)
class Ended:
    """How a process came to its end: its exit code, a signal's as a negative one; whether its time ran out; its log."""

    code: int
    late: bool
    log: Path

    def cause(self, name: str = "the process") -> str:
        """That end in words, with what it last said."""
        if self.code == processes.KILLED:
            ended = f"{name} was killed (SIGKILL), as the system does when memory runs out"
        elif self.code < 0:
            ended = f"{name} crashed ({signal.Signals(-self.code).name})"
        else:
            ended = f"{name} ended with exit code {self.code}"
        last = last_useful_line(self.log.read_text(errors="replace", encoding="utf-8"))
        return f"{ended}; it last said: {last}" if last else ended


def openmp_wait() -> dict[str, str]:
    """`OPENMP_WAIT` for the environment of a process that computes; nothing where the user has set either variable."""
    return {} if OPENMP_WAIT.keys() & os.environ.keys() else dict(OPENMP_WAIT)


def leave_with_parent() -> None:
    """In the child: watch standard input, a pipe that nobody writes to; it closes when the parent ends, however.

    Then the child ends, and with it all that it started.
    """

    def watch() -> None:
        while os.read(0, 4096):  # sys.stdin's own lock, held by a thread, aborts Python when the child ends by itself
            pass
        processes.leave()

    threading.Thread(target=watch, daemon=True).start()


def run(
    module: str,
    arguments: Sequence[str],
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    *,
    started: Callable[[int], object] | None = None,
    look: Callable[[], object] | None = None,
) -> Ended:
    """`python -m MODULE ARGUMENTS` in a fresh process, to its end; it ends with this one. What it says goes to `log`.

    `started` is called with its process id. `look` is called many times a second and once at the end: true ends the
    process.
    """
    with open(log, "wb") as stream:
        process = start(module, arguments, environment, stdout=stream, stderr=subprocess.STDOUT)
        try:
            if started is not None:
                started(process.pid)
            late = not _wait(process, time.monotonic() + timeout_s, look)
        finally:
            end(process)
    return Ended(process.returncode, late, log)


def start(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    """`python -m MODULE ARGUMENTS`, in a session of its own, with this process's search path; `end` ends it."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        env={**openmp_wait(), **os.environ, **(environment or {}), "PYTHONPATH": path},
        start_new_session=True,
        **streams,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """In the parent: kill what still runs of a child and of all that it started, also where itself has gone."""
    processes.end(process)
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):  # its input may be unread
            process.stdin.close()


def notes(journal: Path) -> list[dict[str, Any]]:
    """What a child noted, one JSON object a line; none without the file."""
    found = []
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else ():
        with contextlib.suppress(ValueError):  # the last line of a child that was killed while writing it
            found.append(json.loads(line))
    return found


def last_useful_line(text: str) -> str:
    """The last line of a log that is no progress bar, no indented frame of a traceback, no routine message."""
    lines = [part for line in text.splitlines() for part in line.split("\r")]
    useful = [line.strip() for line in lines if not ROUTINE.search(line)]
    return useful[-1][:300] if useful else ""


def _wait(process: subprocess.Popen[bytes], deadline: float, look: Callable[[], object] | None) -> bool:
    """False when the time ran out."""
    while True:
        ended, late = processes.ended(process), time.monotonic() > deadline
        if (look is not None and look()) or ended:
            return True
        if late:
            return False
        processes.ended(process, POLL_S)
