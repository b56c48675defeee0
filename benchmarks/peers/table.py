"""A peer's files beside the run's own, out of a finished benchmark: figures, intervals, and who is ahead in what."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import NotRun
from benchmarks.peers.record import NAME
from edgekit.core import artifacts
from edgekit.core.config import TARGETS
from edgekit.runner.measure.intervals import Median, Ratio
from edgekit.stages.benchmark.timings import Timings

SUFFIXES = {".tflite": "tflite", ".xml": "openvino", ".onnx": "onnx"}
OPENINGS = re.compile(r"each opened anew (?:\d+ to )?(\d+) times")


@dataclass(frozen=True)
class Ours:
    """One of the run's own files: the winner of its target, or the baseline post-training quantized."""

    name: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: Median
    wins: bool


@dataclass(frozen=True)
class Beside:
    """A peer's file against one of ours: `slower` is its p50 over ours."""

    ours: Ours
    gain_pp: float
    bytes_ratio: float
    slower: Ratio

    @property
    def ahead(self) -> tuple[str, ...]:
        """In which figures the peer's is ahead; in time, if surely so."""
        better = {"accuracy": self.gain_pp > 0, "bytes": self.bytes_ratio < 1, "time": self.slower.high < 1}
        return tuple(name for name, holds in better.items() if holds)

    @property
    def beats(self) -> bool:
        """Whether the peer's is at least as accurate on test, and smaller or surely faster."""
        return self.gain_pp >= 0 and bool({"bytes", "time"} & set(self.ahead))


@dataclass(frozen=True)
class Theirs:
    """A peer's file as it was measured in the rounds of the run, and what it is beside ours of its target."""

    peer: str
    name: str
    how: str
    target: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: Median
    seconds: float
    beside: tuple[Beside, ...]


@dataclass(frozen=True)
class Table:
    """All rows by target, what peers said, and how it was measured."""

    ours: dict[str, list[Ours]]
    theirs: dict[str, list[Theirs]]
    peers: dict[str, dict[str, Any]]
    conditions: dict[str, Any]
    confidence: float


def read(run: Path, peers: Path) -> Table:
    """The table of a finished run whose rivals were the files that peers.json in the folder `peers` names.

    NotRun where one of the two is missing, or the run measured other files.
    """
    path = peers / NAME
    if not path.is_file():
        raise NotRun(f"{path} is not there; run python -m benchmarks.peers CONFIG --run {run}")
    if not (run / "benchmark" / "artifact.json").is_file():
        raise NotRun(f"{run} has no finished benchmark; give the folder of a finished run, as artifacts/cifar10")
    told, artifact = json.loads(path.read_text())["peers"], artifacts.load(run / "benchmark")
    rivals = {row["sha256"]: row for row in artifact.metrics["rivals"]}
    files = [(name, row) for name in sorted(told) for row in told[name]["files"]]
    if missing := [row["file"] for _, row in files if row["sha256"] not in rivals]:
        raise NotRun(
            f"{run} did not measure {', '.join(missing)}; run it again with the setting in {peers / 'rivals.txt'}"
        )
    timings = _timings(artifact)
    ours = {target: _ours(artifact, target, timings) for target in TARGETS}
    rows = [_theirs(name, row, rivals[row["sha256"]], ours, timings) for name, row in files]
    theirs = {target: [row for row in rows if row.target == target] for target in TARGETS}
    return Table(ours, theirs, told, artifact.metrics["conditions"], timings.confidence)


def _timings(artifact: artifacts.Artifact) -> Timings:
    found = OPENINGS.search(artifact.metrics["conditions"]["protocol"])
    with np.load(artifact.path / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False) as file:
        samples_ms = {name: file[name] for name in file.files}
    config = artifact.config
    return Timings(samples_ms, int(found[1]) if found else config["rounds"], config["confidence"], config["tie_margin"])


def _ours(artifact: artifacts.Artifact, target: str, timings: Timings) -> list[Ours]:
    """The target's winner first, if it has one; then the baseline as int8, which is the network that peers got."""
    winner, rows = artifact.metrics["winners"].get(target), {}
    for row in artifact.metrics["rows"]:
        plain = (row["model"], row["precision"], row["target"]) == ("baseline", "int8", target)
        if row["name"] == winner or plain:
            rows[row["name"]] = Ours(
                row["name"], row["accuracy_validation"], row["accuracy_test"], row["bytes"],
                timings.median(row["name"]), row["name"] == winner,
            )  # fmt: skip
    return sorted(rows.values(), key=lambda row: not row.wins)


def _theirs(
    peer: str, told: dict[str, Any], rival: dict[str, Any], ours: dict[str, list[Ours]], timings: Timings
) -> Theirs:
    target, name = SUFFIXES[Path(told["file"]).suffix], rival["name"]
    beside = tuple(
        Beside(
            each,
            100 * (rival["accuracy_test"] - each.accuracy_test),
            rival["bytes"] / each.bytes,
            timings.ratio(name, each.name),
        )
        for each in ours[target]
    )
    return Theirs(
        peer, name, told["how"], target, told["accuracy_validation"], rival["accuracy_test"], rival["bytes"],
        timings.median(name), told["seconds"], beside,
    )  # fmt: skip
