"""What one peer needs, the worker that runs it, the files that it made, and peers.json, the record of all peers."""

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
from edgekit.core.errors import EdgekitError
from edgekit.core.hashing import write_json

RECORD = "peers.json"
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
class Made:
    """All that a peer made, `seconds` in all; `tried` is how many files a search looked at.

    A failure is a row with the `file`, `how` it was to be made, and in one line `why` it could not be.
    """

    files: list[File]
    failures: list[dict[str, str]]
    seconds: float
    tried: int


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
    kept: Callable[[list[File]], list[File]] = list

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
        failures = [{"file": row["file"], "how": row["how"], "why": row["failed"]} for row in rows if "failed" in row]
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


@dataclass(frozen=True)
class Record:
    """A row for each peer by its name, of the subject with that digest; files are named as they lie below `folder`."""

    folder: Path
    subject: str
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """All files that run, in the peers' order."""
        return [self.folder / row["path"] for name in sorted(self.peers) for row in self.peers[name]["files"]]

    def write(self) -> None:
        """Write it whole."""
        write_json(self.folder / RECORD, {"subject": self.subject, "peers": self.peers})


def read_record(folder: Path, subject: str) -> Record:
    """What was recorded of this subject in `folder`; of another one nothing is kept."""
    path = folder / RECORD
    told = json.loads(path.read_text()) if path.is_file() else {}
    return Record(folder, subject, told["peers"] if told.get("subject") == subject else {})


def record_row(peer: Peer, made: Made, folder: Path, judged: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What a peer made; a file that the workbook's interpreter refuses is no rival, and stands among the failures."""
    files, failures = [], list(made.failures)
    for file in made.files:
        try:
            found = judged(file.path)
        except EdgekitError as error:
            why = str(error).replace(f"{file.path}: ", "")
            failures.append({"file": file.path.name, "how": file.how, "why": why})
            continue
        files.append(
            {
                "file": file.path.name,
                "path": str(file.path.relative_to(folder)),
                "how": file.how,
                "seconds": file.seconds,
                "bytes": file.bytes,
                **found,
                "options": {key: value for key, value in file.options.items() if value not in (None, {}, [])},
                "own": {"accuracy": file.accuracy, "p50_ms": file.p50_ms},
            }
        )
    packages = [*peer.first, *peer.packages, *peer.alone]
    about = {"what": peer.what, "packages": packages, "seconds": made.seconds, "tried": made.tried}
    return {**about, "files": files, "failures": failures}


def failed_row(peer: Peer, why: str) -> dict[str, Any]:
    """The row of a peer that could not be installed, or whose worker failed."""
    nothing = {"file": "", "how": "all", "why": why.removeprefix(f"{peer.name}: ")}
    return record_row(peer, Made([], [nothing], 0.0, 0), Path(), dict)
