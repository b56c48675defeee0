"""Write docs/results/peers.md: `python -m benchmarks.peers.page RUN`.

The run has measured the files of other toolkits in the same rounds as its own. The page compares each of them with the
run's winner and with the same network as edgekit quantizes it.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, NotRun, markdown, parser
from benchmarks.peers.__main__ import HOME
from benchmarks.peers.peer import RECORD
from edgekit.core import artifacts
from edgekit.core.errors import EdgekitError
from edgekit.device.measure.intervals import MedianInterval, RatioInterval
from edgekit.stages.benchmark.timings import Timings

PAGE = ROOT / "docs" / "results" / "peers.md"
TARGETS = {"tflite": "TFLite", "openvino": "OpenVINO", "onnx": "ONNX Runtime"}
HEADER = ("file", "how", "test", "bytes", "p50", "p50 / winner's", "p50 / same network's")
SUFFIXES = {".tflite": "tflite", ".xml": "openvino", ".onnx": "onnx"}
OPENINGS = re.compile(r"each opened anew (?:\d+ to )?(\d+) times")


@dataclass(frozen=True)
class Ours:
    """One of the run's own files: the winner of its target, or the baseline post-training quantized."""

    name: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: MedianInterval
    wins: bool


@dataclass(frozen=True)
class Beside:
    """Another toolkit's file compared with one of ours: `slower` is its p50 divided by ours."""

    ours: Ours
    gain_pp: float
    bytes_ratio: float
    slower: RatioInterval

    @property
    def ahead(self) -> tuple[str, ...]:
        """The figures in which the other toolkit's file is ahead; in time, if significantly so."""
        better = {"accuracy": self.gain_pp > 0, "bytes": self.bytes_ratio < 1, "time": self.slower.high < 1}
        return tuple(name for name, holds in better.items() if holds)

    @property
    def beats(self) -> bool:
        """Whether the other file is at least as accurate on test, and smaller or significantly faster."""
        return self.gain_pp >= 0 and bool({"bytes", "time"} & set(self.ahead))


@dataclass(frozen=True)
class Theirs:
    """Another toolkit's file as the run measured it, and its comparison with our files of the same target."""

    peer: str
    name: str
    how: str
    target: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: MedianInterval
    seconds: float
    beside: tuple[Beside, ...]


@dataclass(frozen=True)
class Table:
    """All rows by target, the records of the toolkits, and the conditions of the measurement."""

    ours: dict[str, list[Ours]]
    theirs: dict[str, list[Theirs]]
    peers: dict[str, dict[str, Any]]
    conditions: dict[str, Any]
    confidence: float


def read(run: Path, peers: Path) -> Table:
    """Read the figures of a finished run that measured the files named by peers.json in the folder `peers`.

    Raises NotRun if one of the two is missing, or if the run measured other files.
    """
    path = peers / RECORD
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
    """The target's winner, if it has one, then the baseline in int8: the network that other toolkits got."""
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


def main() -> int:
    """Write the page, or print why there is nothing to write it from and return 1."""
    arguments = parser(__doc__, "python -m benchmarks.peers.page")
    arguments.add_argument("run", type=Path, help="folder of the finished run, as artifacts/cifar10")
    arguments.add_argument("--peers", type=Path, help="folder of its peers.json (default: build/peers/NAME of the run)")
    arguments.add_argument("--page", type=Path, default=PAGE, help="file to write (default: docs/results/peers.md)")
    options = arguments.parse_args()
    try:
        found = read(options.run, options.peers or HOME / options.run.resolve().name)
    except (NotRun, EdgekitError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    options.page.write_text(text(found, options.run.resolve().name), encoding="utf-8")
    return 0


def text(found: Table, run: str) -> str:
    """The whole page."""
    parts = [
        _head(run),
        _short(found),
        *(_target(found, each) for each in TARGETS),
        _failures(found),
        _how(found),
        _conditions(found),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _head(run: str) -> str:
    return f"""
# Compared with other toolkits

**Question.** Does another toolkit make a better file of the same trained network?

The trained float baseline of the run `{run}` went through other toolkits, each in an environment of its own.
All used the samples that edgekit calibrates with, and their files were timed in the same rounds as the run's own.
None of these toolkits distils or prunes: they compress the network as it is.
So each file is compared with two of ours: the winner of its target, and the same network as edgekit quantizes it.
"""


def _conditions(found: Table) -> str:
    seen = found.conditions
    return f"""
## Conditions, and how to run it again

`python -m benchmarks.peers` makes the files, and `python -m benchmarks.peers.page` writes this page.

| condition | |
|---|---|
| processor | {seen["cpu"]} |
| threads | {seen["threads"]} |
| protocol | {seen["protocol"]} |
| intervals | {100 * found.confidence:g} % |
| noise | {"; ".join(seen["disturbed"]) or "none observed"} |
"""


def _short(found: Table) -> str:
    rows = []
    for target, said in TARGETS.items():
        count = len(found.theirs[target])
        for ours in found.ours[target] if count else []:
            better = [row for row in found.theirs[target] if _to(row, ours).beats]
            what = "the winner" if ours.wins else "the same network"
            names = ", ".join(f"`{row.name}`" for row in better) or "none"
            rows.append([said, f"{what}, `{ours.name}`", str(count), names, _span([_to(row, ours) for row in better])])
        if not count or not any(ours.wins for ours in found.ours[target]):
            why = "–" if count == 0 else "none of our files is within the budget"
            rows.append([said, "the winner", str(count), why, "–"])
    header = ("target", "compared with", "files", "better ones", "their p50 / ours")
    return f"""
A file is better if it is no less accurate on test, and smaller or significantly faster.

{markdown(header, rows, words=(0, 1, 3))}
"""


def _target(found: Table, target: str) -> str:
    ours, theirs = found.ours[target], found.theirs[target]
    if not theirs:
        return ""
    rows = [_our_row(row) for row in ours]
    rows += [_their_row(row) for row in sorted(theirs, key=lambda row: (-row.accuracy_test, row.p50.p50_ms))]
    return f"## {TARGETS[target]}\n\n{markdown(HEADER, rows, words=(0, 1))}"


def _our_row(row: Ours) -> list[str]:
    how = "edgekit's winner" if row.wins else "edgekit's post-training int8 of the same network"
    return [f"**`{row.name}`**", how, *_figures(row), "", ""]


def _their_row(row: Theirs) -> list[str]:
    winner = next((each for each in row.beside if each.ours.wins), None)
    same = next((each for each in row.beside if each.ours.name.startswith("baseline-")), None)
    return [
        f"`{row.name}`",
        row.how,
        *_figures(row),
        "" if winner is None else f"{winner.slower.ratio:.2f}",
        _slower(same),
    ]


def _figures(row: Ours | Theirs) -> list[str]:
    return [f"{100 * row.accuracy_test:.2f} %", f"{row.bytes:,}", f"{_three(1000 * row.p50.p50_ms)} µs"]


def _failures(found: Table) -> str:
    rows = [
        [name, f"`{one['file']}`" if one["file"] else "–", one["how"], one["why"].replace("|", "/")]
        for name, told in sorted(found.peers.items())
        for one in told["failures"]
    ]
    if not rows:
        return ""
    header = ("toolkit", "file", "how", "why")
    return f"## What could not be made or run\n\n{markdown(header, rows, words=range(4))}"


def _how(found: Table) -> str:
    rows = [
        [name, told["what"], ", ".join(f"`{each}`" for each in told["packages"]), f"{told['seconds']:,.0f} s"]
        for name, told in sorted(found.peers.items())
    ]
    header = ("toolkit", "what", "installed", "time")
    return f"""
## How each toolkit was run

The time is of all calls together, with the imports.

{markdown(header, rows, words=(0, 1, 2))}
"""


def _to(row: Theirs, ours: Ours) -> Beside:
    return next(each for each in row.beside if each.ours == ours)


def _span(compared: list[Beside]) -> str:
    """The lowest and the highest ratio of p50."""
    ratios = [each.slower.ratio for each in compared]
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "–"


def _slower(beside: Beside | None) -> str:
    if beside is None:
        return ""
    found = beside.slower
    return f"{found.ratio:.2f} ({found.low:.2f}–{found.high:.2f})"


def _three(value: float) -> str:
    """Three significant digits, never by exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
