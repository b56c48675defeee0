"""A `worker.py` in a process of its own, asked one thing at a time. Its death is an answer like any other."""

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
"""For one answer; opening a large model on a slow board takes a while."""
POLL_S = 0.2
"""How often it is looked whether the process is still there."""
REASONS = {
    "SIGKILL": "it was killed, most likely because memory ran out",
    "SIGILL": "it was built for a processor with other instructions",
    "SIGTERM": "somebody ended it",
}

OnProgress = Callable[[str, bool], object]
"""Is called with a line, and whether it matters after this moment."""


def prefix_fault(interpreter: str, fault: str) -> str:
    """A fault that says whose it is."""
    return fault if fault.startswith(interpreter) else f"{interpreter} {fault}"


class TuningProcess:
    """A context manager; leaving it ends the process.

    `identity` is that of the bundle which the parent has read: another file at `path` by now is not opened, TrustError.
    """

    def __init__(self, path: str | os.PathLike[str], identity: str, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._rest = b""
        try:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
            self._process = processes.start_function(
                "edgekit.device.autotune.worker:main",
                [os.fspath(path), identity],
                reads_input=True,
                stdout=subprocess.PIPE,
                stderr=self._said,
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

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """The answer, or the error that it is; BackendError when none comes in time or the process dies over it."""
        commands = self._process.stdin
        assert commands is not None
        try:
            commands.write(json.dumps({"do": do, **what}).encode() + b"\n")
            commands.flush()
        except BrokenPipeError:
            raise self._died() from None
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise getattr(errors, answer["kind"], BackendError)(answer["error"])
        return answer

    def close(self) -> None:
        """End the process, whatever it is doing, with all that it started."""
        processes.end_process(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()

    def _line(self) -> bytes:
        deadline = time.monotonic() + self._limit_s
        while b"\n" not in self._rest:
            gone = processes.has_ended(
                self._process
            )  # what it started may keep the pipe open: no end is to be read then
            try:
                piece = self._pieces.get(timeout=POLL_S)
            except Empty:
                if gone:
                    raise self._died() from None
                if time.monotonic() < deadline:
                    continue
                processes.kill_process(self._process)
                raise BackendError(
                    f"gave no answer within {self._limit_s:.0f} s and was ended; the model may be broken"
                ) from None
            if not piece:
                raise self._died()
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _died(self) -> BackendError:
        processes.has_ended(self._process, self._limit_s)
        code = processes.end_process(self._process)
        if code < 0:
            name = processes.signal_name(-code)
            return BackendError(f"crashed ({name}); {REASONS.get(name, 'the model is broken, or for another version')}")
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        return BackendError(f"ended with exit code {code}: {''.join(last)[:300] or 'it said nothing'}")


def _forward(handle: int, pieces: SimpleQueue[bytes]) -> None:
    """In a thread: pass on what comes out of a pipe, and an empty piece at its end.

    Windows cannot wait for a pipe with a time limit, but a queue can be waited for everywhere.
    """
    while piece := os.read(handle, 1 << 16):
        pieces.put(piece)
    os.close(handle)
    pieces.put(b"")
