"""The parent's side of `worker.py`: start it in its own process, and send it one command at a time.

If the worker crashes or hangs, the command raises BackendError, which the tuning counts as a fault of the candidate.
"""

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
"""How often to check whether the process has ended."""
REASONS = {
    "SIGKILL": "it was killed, most likely because memory ran out",
    "SIGILL": "it was built for a processor with other instructions",
    "SIGTERM": "it was terminated from outside",
}

OnProgress = Callable[[str, bool], object]
"""Called with a line of text, and with True if the line still matters after the model was loaded, as a warning does."""


def prefix_fault(interpreter: str, fault: str) -> str:
    """Put the name of the interpreter in front of a fault, unless the fault begins with it."""
    return fault if fault.startswith(interpreter) else f"{interpreter} {fault}"


class TuningProcess:
    """A worker process for the bundle at `path`. It is a context manager that ends the process on leaving.

    `identity` is that of the bundle that the parent has read. If the file at `path` has changed since then, the worker
    does not open it, and `ask` raises TrustError.
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
        """Send a command to the worker and return its answer, or raise the error that it reports.

        Raises BackendError if no answer comes in time, or if the process dies.
        """
        commands = self._process.stdin
        assert commands is not None
        try:
            commands.write(json.dumps({"do": command, **arguments}).encode() + b"\n")
            commands.flush()
        except BrokenPipeError:
            raise self._death_error() from None
        answer: dict[str, Any] = json.loads(self._read_line())
        if "error" in answer:
            raise getattr(errors, answer["kind"], BackendError)(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and everything that it started."""
        processes.end_process(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _read_line(self) -> bytes:
        deadline = time.monotonic() + self._limit_s
        while b"\n" not in self._rest:
            # If the worker started a process, that process may keep the pipe open, so the pipe alone does not show that
            # the worker has died.
            is_dead = processes.has_ended(self._process)
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
    """Copy what arrives on a pipe into a queue, and put an empty piece there when the pipe closes.

    This runs in a thread, because Windows cannot wait for a pipe with a timeout. Every system can wait for a queue with
    a timeout.
    """
    while piece := os.read(handle, 1 << 16):
        pieces.put(piece)
    os.close(handle)
    pieces.put(b"")
