"""The shape that all peers share: what one needs, the worker that runs it, and the files that it made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, NotRun, python_of
from benchmarks.peers.given import FOUND
from edgekit.core import telemetry

SLACK_S = 900
"""Beyond what a search may take: its last trial, importing, and peers that do not search."""
QUIET = {**telemetry.ENVIRONMENT, "OLIVE_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclass(frozen=True)
class File:
    """A file that a peer made, in `seconds`. Of a search: its options, and what the peer itself measured.

    `accuracy` is the peer's own on validation, `p50_ms` its own on one thread; None where it measures nothing.
    """

    path: Path
    how: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    p50_ms: float | None = None

    @property
    def bytes(self) -> int:
        """On disk, with the weights that OpenVINO keeps beside its .xml."""
        weights = self.path.with_suffix(".bin")
        beside = weights.stat().st_size if self.path.suffix == ".xml" and weights.is_file() else 0
        return self.path.stat().st_size + beside


@dataclass(frozen=True)
class Failure:
    """A file that could not be made or run, and why, in a line."""

    name: str
    how: str
    why: str


@dataclass(frozen=True)
class Made:
    """All that a peer made, `seconds` in all; `tried` is how many files a search looked at."""

    files: list[File]
    failures: list[Failure]
    seconds: float
    tried: int


def all_of(files: list[File]) -> list[File]:
    """Every file is kept."""
    return files


@dataclass(frozen=True)
class Peer:
    """A toolkit in an environment of its own, which `workers/NAME.py` runs in.

    `packages`, `first` and `alone` are requirements as `harness.python_of` takes them. `kept` are those of its
    files that are measured beside ours.
    """

    name: str
    what: str
    packages: tuple[str, ...]
    first: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    kept: Callable[[list[File]], list[File]] = all_of

    def files(self, subject: Path, out: Path, environments: Path, seconds: int) -> Made:
        """What it makes of the subject, in `out`, which is emptied first.

        NotRun where its environment cannot be made, its worker fails, or takes longer than `seconds` and some minutes.
        """
        python = python_of(environments / self.name, self.packages, first=self.first, alone=self.alone)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        began = time.perf_counter()
        self._work(python, subject, out, seconds)
        took_s = time.perf_counter() - began
        rows = json.loads((out / FOUND).read_text())
        files = [_file(row, out) for row in rows if "failed" not in row]
        failures = [Failure(row["file"], row["how"], row["failed"]) for row in rows if "failed" in row]
        if not rows:
            raise NotRun(f"{self.name}: made no file in {took_s:.0f} s; {out / 'worker.log'} has its words")
        return Made(self.kept(files), failures, took_s, len(files))

    def _work(self, python: Path, subject: Path, out: Path, seconds: int) -> None:
        worker = f"benchmarks.peers.workers.{self.name}"
        words = [str(python), "-P", "-m", worker, str(subject.resolve()), str(out.resolve()), str(seconds)]
        log, limit_s = out / "worker.log", seconds + SLACK_S
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
        with log.open("w") as said:
            try:
                done = subprocess.run(words, stdout=said, stderr=said, timeout=limit_s, env=environment, cwd=out)
            except subprocess.TimeoutExpired:
                raise NotRun(f"{self.name}: took longer than {limit_s} s; {log} has its words") from None
        if done.returncode or not (out / FOUND).is_file():
            raise NotRun(f"{self.name}: ended with exit code {done.returncode}; {log} has its words")


def _file(row: dict[str, Any], out: Path) -> File:
    own = {name: row[name] for name in ("options", "accuracy", "p50_ms") if name in row}
    return File(out / row["file"], row["how"], row["seconds"], **own)
