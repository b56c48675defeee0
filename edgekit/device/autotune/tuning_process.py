"""A `worker.py` in a process of its own, which handles one request at a time. If it dies, that is a result too."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from edgekit.device import processes
from edgekit.runner import errors
from edgekit.runner.errors import BackendError

LIMIT_S = 120.0
"""Time limit for one answer; opening a large model on a slow board takes a while."""
POLL_S = 0.2
"""How often to check whether the process still exists."""
REASONS = {
    "SIGKILL": "it was killed, most likely because memory ran out",
    "SIGILL": "it was built for a processor with other instructions",
    "SIGTERM": "it was terminated from outside",
}

OnProgress = Callable[[str, bool], object]
"""Called with a line, and whether it still matters afterwards."""


def prefix_fault(interpreter: str, fault: str) -> str:
    """Return a fault that begins with the name of the interpreter."""
    return fault if fault.startswith(interpreter) else f"{interpreter} {fault}"


class TuningProcess:
    """A context manager; leaving it ends the process.

    `identity` is that of the bundle that the parent has read. If `path` holds another file by now, it is not opened,
    and TrustError is raised.
    """

    def __init__(self, path: str | os.PathLike[str], identity: str, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._rest = b""
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
            self._process = processes.start_function(
                "edgekit.device.autotune.worker:main",
                [os.fspath(path), identity],
                reads_input=True,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
            )
            assert self._process.stdout is not None
            self._pieces: SimpleQueue[bytes] = SimpleQueue()
            reader = (os.dup(self._process.stdout.fileno()), self._pieces)
            threading.Thread(target=_forward, args=reader, daemon=True).start()
        except OSError as error:
            raise BackendError(f"cannot be tried in a process of its own ({error.strerror}); use --no-trial") from None

    def __enter__(self) -> TuningProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer, or raise the error that it reports.

        Raises BackendError if there is no answer in time, or if the process dies.
        """
        commands = self._process.stdin
        assert commands is not None
        try:
            commands.write(json.dumps({"do": command, **arguments}).encode() + b"\n")
            commands.flush()
        except BrokenPipeError:
            raise self._death_error() from None
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise getattr(errors, answer["kind"], BackendError)(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and everything that it started."""
        processes.end_process(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _line(self) -> bytes:
        deadline = time.monotonic() + self._limit_s
        while b"\n" not in self._rest:
            is_dead = processes.has_ended(
                self._process
            )  # a process that it started may keep the pipe open, so that no end would be read
            try:
                piece = self._pieces.get(timeout=POLL_S)
            except Empty:
                if is_dead:
                    raise self._death_error() from None
                if time.monotonic() < deadline:
                    continue
                processes.kill_process(self._process)
                raise BackendError(
                    f"gave no answer within {self._limit_s:.0f} s and was stopped; the model may be broken"
                ) from None
            if not piece:
                raise self._death_error()
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _death_error(self) -> BackendError:
        processes.has_ended(self._process, self._limit_s)
        code = processes.end_process(self._process)
        if code < 0:
            name = processes.signal_name(-code)
            return BackendError(
                f"crashed ({name}); {REASONS.get(name, 'the model is broken, or was made for another version')}"
            )
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return BackendError(f"ended with exit code {code}: {''.join(last)[:300] or 'no output'}")


def _forward(handle: int, pieces: SimpleQueue[bytes]) -> None:
    """In a thread: pass on what a pipe delivers, and an empty piece at its end.

    Windows cannot wait for a pipe with a timeout, but a queue can be waited for everywhere.
    """
    while piece := os.read(handle, 1 << 16):
        pieces.put(piece)
    os.close(handle)
    pieces.put(b"")
