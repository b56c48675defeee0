"""A work in a child process: begun, listened to, ended with its parent, and its answer read."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from edgekit.core import subprocesses
from edgekit.runner import processes
from edgekit.workbook.workers.work import ANSWER, WORK, Answer, WorkerDied

LOOK_S = 0.2
GRACE_S = 5.0
LINES_S = 2.0
"""Seconds for the last lines of a process that has ended; something it left behind may keep its output open."""


def carry(work: str, environment: Mapping[str, str], say: Callable[[str], None], wanted: Callable[[], bool]) -> Answer:
    """Do `work` (from `Work.to_json`) in a process of its own; each of its lines goes to `say`.

    The process is killed, with all that it started, as soon as `wanted` says no. WorkerDied for one without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-work-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / WORK).write_text(work, encoding="utf-8")
        process = subprocesses.start(
            "edgekit.workbook.workers.worker",
            [folder],
            {"PYTHONUNBUFFERED": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        lines = _Lines(process.stdout, say)
        try:
            while not processes.ended(process, LOOK_S):
                if not wanted():
                    process.terminate()  # a run that is asked so ends its kernel, and gives its locks back
                    processes.ended(process, GRACE_S)
                    break
        finally:
            subprocesses.end(process)
            lines.join()
        path = Path(folder) / ANSWER
        if not path.is_file():
            raise WorkerDied(_cause(process.returncode, lines.last))
        return Answer(**json.loads(path.read_text(encoding="utf-8")))


class _Lines:
    """Reads a process's output in a thread, so that a full pipe never stops it."""

    def __init__(self, stream: IO[bytes] | None, say: Callable[[str], None]) -> None:
        assert stream is not None
        self.last = ""
        self._stream, self._say = stream, say
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the last lines."""
        self._thread.join(LINES_S)

    def _read(self) -> None:
        with self._stream:
            for raw in self._stream:
                line = raw.decode(errors="replace").rstrip()
                self.last = subprocesses.last_useful_line(line) or self.last
                self._say(line)


def _cause(code: int, last: str) -> str:
    if code == processes.KILLED:
        ended = "was killed (SIGKILL), as the system does when memory runs out"
    elif code < 0:
        ended = f"crashed ({processes.signal_name(-code)})"
    else:
        ended = f"ended with exit code {code} and no answer"
    return f"{ended}; it last said: {last}" if last else ended
