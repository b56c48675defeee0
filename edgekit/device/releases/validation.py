"""Validate a release on this device: its self-test and its latency, in a process that can be ended."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from contextlib import suppress
from typing import IO, Any, NamedTuple

from edgekit.device import processes
from edgekit.device.hardware import health
from edgekit.device.releases import records
from edgekit.device.releases.home import Home

MIN_MEMORY_MB = 256
MEMORY_FRACTION = 0.75
"""Fraction of the available memory that a validation may use by default."""
MAX_PROBLEM_LENGTH = 400
REASONS = {
    signal.SIGXCPU: "used more than {cpu_s:g} s of processor time",
    signal.SIGALRM: "did not end within {wall_s:g} s",
    signal.SIGXFSZ: "kept writing output without end",
    signal.SIGKILL: "was killed, most likely because memory ran out",
}


class ValidationLimits(NamedTuple):
    """What a validation may use, and how high the latency may be.

    By default `memory_mb` is three quarters of the available memory, and `latency_ms` is the bundle's budget.
    """

    memory_mb: int | None = None
    cpu_s: float = 120.0
    wall_s: float = 300.0
    latency_ms: float | None = None


DEFAULT = ValidationLimits()


class ValidationProcess:
    """A running validation. Poll `report` until it has ended, or call `wait`."""

    def __init__(self, home: Home, number: int, limits: ValidationLimits, interpreter: str | None = None) -> None:
        if limits.memory_mb is None:
            available = health.memory_bytes()[1]
            limits = limits._replace(memory_mb=max(MIN_MEMORY_MB, int((available or 1 << 30) * MEMORY_FRACTION) >> 20))
        self._limits = limits
        self._deadline = time.monotonic() + limits.wall_s
        path = str(home.release(number) / records.BUNDLE)
        request = {
            **limits._asdict(),
            "path": path,
            "sha256": records.bundle_digest(home, number),
            "interpreter": interpreter,
        }
        self._answer, self._stderr = _unnamed_file(), _unnamed_file()
        self._process = processes.start_function(
            "edgekit.device.releases.worker:main", [json.dumps(request)], stdout=self._answer, stderr=self._stderr
        )

    def report(self) -> dict[str, Any] | None:
        """Return None while the validation runs, then its report, whose `problem` is "" if the release works here."""
        is_late = time.monotonic() > self._deadline
        if not is_late and not processes.has_ended(self._process):
            return None
        code = processes.end_process(self._process)
        answer, stderr = self._text(self._answer), self._text(self._stderr)
        with suppress(ValueError):
            result = dict(json.loads(answer))
            return {**result, "problem": _shorten(result["problem"])}
        if is_late or -code in REASONS:
            number = signal.SIGALRM if is_late else signal.Signals(-code)
            return {"problem": REASONS[number].format(**self._limits._asdict())}
        if code < 0:
            name, memory_mb = processes.signal_name(-code), self._limits.memory_mb
            return {
                "problem": f"crashed ({name}); the model is broken, or needs more than the {memory_mb} MB it may use"
            }
        last = "".join(stderr.strip().splitlines()[-1:])[:300]
        return {"problem": f"ended with exit code {code}: {last or 'no output'}"}

    def wait(self) -> dict[str, Any]:
        """Wait for the report."""
        while (report := self.report()) is None:
            processes.has_ended(self._process, processes.POLL_S)
        return report

    def close(self) -> None:
        """End the process, whatever it is doing."""
        processes.end_process(self._process)

    @staticmethod
    def _text(stream: IO[bytes]) -> str:
        stream.seek(0)
        with stream:
            return stream.read().decode(errors="replace")


def _shorten(text: str) -> str:
    """Return a text in one line, with the middle of a long one left out."""
    text = " ".join(text.split())
    return (
        text
        if len(text) <= MAX_PROBLEM_LENGTH
        else f"{text[: MAX_PROBLEM_LENGTH // 2]} … {text[-MAX_PROBLEM_LENGTH // 2 :]}"
    )


def _unnamed_file() -> IO[bytes]:
    """Return an unnamed file, in memory if the kernel supports that, so that a full disk does not fail the bundle."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("proof"), "w+b")
    return tempfile.TemporaryFile()
