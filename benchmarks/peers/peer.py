"""A toolkit: its requirements, the worker that runs it, the files that it makes, and the record of all toolkits."""

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

from benchmarks.harness import ROOT, NotRun, environment_python
from benchmarks.peers.worker_protocol import ROWS_FILE
from edgekit.core import telemetry
from edgekit.core.errors import EdgekitError
from edgekit.core.hashing import write_json

RECORD = "peers.json"
SLACK_S = 900
"""Seconds that a worker may take in addition to the time of a search: for its last trial and for imports.

Toolkits that do not search also have this time.
"""
QUIET = {**telemetry.ENVIRONMENT, "OLIVE_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclass(frozen=True)
class OutputFile:
    """A file that a toolkit made in `seconds`. After a search, it has options and figures from the toolkit itself.

    `accuracy` is the toolkit's own figure on validation and `p50_ms` its own on one thread, or None if it measures
    nothing.
    """

    path: Path
    how: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    p50_ms: float | None = None

    @property
    def bytes(self) -> int:
        """Size on disk, including the weights that OpenVINO keeps beside its .xml."""
        weights = self.path.with_suffix(".bin")
        weights_bytes = weights.stat().st_size if self.path.suffix == ".xml" and weights.is_file() else 0
        return self.path.stat().st_size + weights_bytes


@dataclass(frozen=True)
class PeerOutput:
    """Everything that a toolkit made, in `seconds` in total. `tried` is the number of files that a search examined.

    A failure is a row with the `file`, `how` it was to be made, and `why` it could not be made.
    """

    files: list[OutputFile]
    failures: list[dict[str, str]]
    seconds: float
    tried: int


@dataclass(frozen=True)
class Peer:
    """A toolkit in an environment of its own, in which `workers/NAME.py` runs.

    `packages`, `first` and `without_dependencies` are requirements as for `harness.environment_python`. `select`
    chooses the files that are measured beside those of the run.
    """

    name: str
    what: str
    packages: tuple[str, ...]
    first: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    select: Callable[[list[OutputFile]], list[OutputFile]] = list

    def files(self, subject: Path, out: Path, environments: Path, seconds: int) -> PeerOutput:
        """Run the toolkit on the subject and return its files, in `out`, which is emptied first.

        Raises
        ------
        NotRun
            The environment cannot be created, or the worker fails or takes longer than `seconds` plus some minutes.
        """
        python = environment_python(
            environments / self.name, self.packages, first=self.first, without_dependencies=self.without_dependencies
        )
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        started = time.perf_counter()
        self._work(python, subject, out, seconds)
        duration_s = time.perf_counter() - started
        rows = json.loads((out / ROWS_FILE).read_text())
        files = [_output_file(row, out) for row in rows if "failed" not in row]
        failures = [{"file": row["file"], "how": row["how"], "why": row["failed"]} for row in rows if "failed" in row]
        if not rows:
            raise NotRun(f"{self.name}: made no file in {duration_s:.0f} s; see {out / 'worker.log'}")
        return PeerOutput(self.select(files), failures, duration_s, len(files))

    def _work(self, python: Path, subject: Path, out: Path, seconds: int) -> None:
        worker = f"benchmarks.peers.workers.{self.name}"
        command = [str(python), "-P", "-m", worker, str(subject.resolve()), str(out.resolve()), str(seconds)]
        log, limit_s = out / "worker.log", seconds + SLACK_S
        environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
        with log.open("w") as log_stream:
            try:
                process = subprocess.run(
                    command, stdout=log_stream, stderr=log_stream, timeout=limit_s, env=environment, cwd=out
                )
            except subprocess.TimeoutExpired:
                raise NotRun(f"{self.name}: took longer than {limit_s} s; see {log}") from None
        if process.returncode or not (out / ROWS_FILE).is_file():
            raise NotRun(f"{self.name}: ended with exit code {process.returncode}; see {log}")


def _output_file(row: dict[str, Any], out: Path) -> OutputFile:
    optional = {name: row[name] for name in ("options", "accuracy", "p50_ms") if name in row}
    return OutputFile(out / row["file"], row["how"], row["seconds"], **optional)


@dataclass(frozen=True)
class PeersRecord:
    """A row for each toolkit by name, for the subject with this digest. Paths are relative to `folder`."""

    folder: Path
    subject: str
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """The paths of all files that run, in the order of the toolkits."""
        return [self.folder / row["path"] for name in sorted(self.peers) for row in self.peers[name]["files"]]

    def write(self) -> None:
        """Write the record."""
        write_json(self.folder / RECORD, {"subject": self.subject, "peers": self.peers})


def read_record(folder: Path, subject: str) -> PeersRecord:
    """Read the record of this subject in `folder`. The record of another subject is discarded."""
    path = folder / RECORD
    content = json.loads(path.read_text()) if path.is_file() else {}
    return PeersRecord(folder, subject, content["peers"] if content.get("subject") == subject else {})


def record_row(
    peer: Peer, output: PeerOutput, folder: Path, evaluate: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """Return the row of a toolkit. A file that edgekit's interpreters cannot run is listed among the failures."""
    files, failures = [], list(output.failures)
    for file in output.files:
        try:
            evaluation = evaluate(file.path)
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
                **evaluation,
                "options": {key: value for key, value in file.options.items() if value not in (None, {}, [])},
                "own": {"accuracy": file.accuracy, "p50_ms": file.p50_ms},
            }
        )
    packages = [*peer.first, *peer.packages, *peer.without_dependencies]
    description = {"what": peer.what, "packages": packages, "seconds": output.seconds, "tried": output.tried}
    return {**description, "files": files, "failures": failures}


def failed_row(peer: Peer, why: str) -> dict[str, Any]:
    """Return the row of a toolkit that could not be installed or whose worker failed."""
    failure = {"file": "", "how": "all", "why": why.removeprefix(f"{peer.name}: ")}
    return record_row(peer, PeerOutput([], [failure], 0.0, 0), Path(), dict)
