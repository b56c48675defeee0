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
class RunFile:
    """One of the run's own files: the winner of its target, or the baseline after post-training quantization."""

    name: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: MedianInterval
    is_winner: bool


@dataclass(frozen=True)
class Comparison:
    """Another toolkit's file compared with one of the run.

    `p50_ratio` is the p50 of the other toolkit's file divided by that of the run's file.
    """

    run_file: RunFile
    gain_pp: float
    bytes_ratio: float
    p50_ratio: RatioInterval

    @property
    def better_in(self) -> tuple[str, ...]:
        """The figures in which the other toolkit's file is better; for time, if it is significantly faster."""
        conditions = {"accuracy": self.gain_pp > 0, "bytes": self.bytes_ratio < 1, "time": self.p50_ratio.high < 1}
        return tuple(name for name, is_met in conditions.items() if is_met)

    @property
    def is_better(self) -> bool:
        """Whether the other file is at least as accurate on test, and smaller or significantly faster."""
        return self.gain_pp >= 0 and bool({"bytes", "time"} & set(self.better_in))


@dataclass(frozen=True)
class PeerFile:
    """Another toolkit's file as the run measured it, compared with the run's files of the same target."""

    peer: str
    name: str
    how: str
    target: str
    accuracy_validation: float
    accuracy_test: float
    bytes: int
    p50: MedianInterval
    seconds: float
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class PeerResults:
    """All rows by target, the records of the toolkits, and the conditions of the measurement."""

    run_files: dict[str, list[RunFile]]
    peer_files: dict[str, list[PeerFile]]
    peers: dict[str, dict[str, Any]]
    conditions: dict[str, Any]
    confidence: float


def read_results(run: Path, peers: Path) -> PeerResults:
    """Read the figures of a finished run that measured the files named by peers.json in the folder `peers`.

    Raises
    ------
    NotRun
        peers.json or the finished benchmark is missing, or the run measured other files.
    """
    path = peers / RECORD
    if not path.is_file():
        raise NotRun(f"{path} is not there; run python -m benchmarks.peers CONFIG --run {run}")
    if not (run / "benchmark" / "artifact.json").is_file():
        raise NotRun(f"{run} has no finished benchmark; give the folder of a finished run, as artifacts/cifar10")
    peer_rows, artifact = json.loads(path.read_text())["peers"], artifacts.load(run / "benchmark")
    measured = {row["sha256"]: row for row in artifact.metrics["rivals"]}
    files = [(name, row) for name in sorted(peer_rows) for row in peer_rows[name]["files"]]
    if missing := [row["file"] for _, row in files if row["sha256"] not in measured]:
        raise NotRun(
            f"{run} did not measure {', '.join(missing)}; run it again with the setting in {peers / 'rivals.txt'}"
        )
    timings = _timings(artifact)
    run_files = {target: _run_files(artifact, target, timings) for target in TARGETS}
    rows = [_peer_file(name, row, measured[row["sha256"]], run_files, timings) for name, row in files]
    peer_files = {target: [row for row in rows if row.target == target] for target in TARGETS}
    return PeerResults(run_files, peer_files, peer_rows, artifact.metrics["conditions"], timings.confidence)


def _timings(artifact: artifacts.Artifact) -> Timings:
    match = OPENINGS.search(artifact.metrics["conditions"]["protocol"])
    with np.load(artifact.path / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False) as file:
        samples_ms = {name: file[name] for name in file.files}
    config = artifact.config
    return Timings(samples_ms, int(match[1]) if match else config["rounds"], config["confidence"], config["tie_margin"])


def _run_files(artifact: artifacts.Artifact, target: str, timings: Timings) -> list[RunFile]:
    """Return the target's winner, if any, and edgekit's int8 file of the network that the other toolkits quantize."""
    winner, rows = artifact.metrics["winners"].get(target), {}
    for row in artifact.metrics["rows"]:
        is_plain_int8 = (row["model"], row["precision"], row["target"]) == ("baseline", "int8", target)
        if row["name"] == winner or is_plain_int8:
            rows[row["name"]] = RunFile(
                row["name"], row["accuracy_validation"], row["accuracy_test"], row["bytes"],
                timings.median(row["name"]), row["name"] == winner,
            )  # fmt: skip
    return sorted(rows.values(), key=lambda row: not row.is_winner)


def _peer_file(
    peer: str, peer_row: dict[str, Any], measured: dict[str, Any], run_files: dict[str, list[RunFile]], timings: Timings
) -> PeerFile:
    target, name = SUFFIXES[Path(peer_row["file"]).suffix], measured["name"]
    comparisons = tuple(
        Comparison(
            run_file,
            100 * (measured["accuracy_test"] - run_file.accuracy_test),
            measured["bytes"] / run_file.bytes,
            timings.ratio(name, run_file.name),
        )
        for run_file in run_files[target]
    )
    return PeerFile(
        peer,
        name,
        peer_row["how"],
        target,
        peer_row["accuracy_validation"],
        measured["accuracy_test"],
        measured["bytes"],
        timings.median(name),
        peer_row["seconds"],
        comparisons,
    )


def main() -> int:
    """Write the page, or print why it cannot be written and return 1."""
    arguments = parser(__doc__, "python -m benchmarks.peers.page")
    arguments.add_argument("run", type=Path, help="folder of the finished run, as artifacts/cifar10")
    arguments.add_argument("--peers", type=Path, help="folder of its peers.json (default: build/peers/NAME of the run)")
    arguments.add_argument("--page", type=Path, default=PAGE, help="file to write (default: docs/results/peers.md)")
    options = arguments.parse_args()
    try:
        results = read_results(options.run, options.peers or HOME / options.run.resolve().name)
    except (NotRun, EdgekitError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    options.page.write_text(page_text(results, options.run.resolve().name), encoding="utf-8")
    return 0


def page_text(results: PeerResults, run: str) -> str:
    """Return the complete page."""
    parts = [
        _introduction(run),
        _summary(results),
        *(_target_table(results, each) for each in TARGETS),
        _failures(results),
        _methods(results),
        _conditions(results),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _introduction(run: str) -> str:
    return f"""
# Compared with other toolkits

**Question.** Does another toolkit make a better file from the same trained network?

The trained float baseline of the run `{run}` was quantized by other toolkits, each in an environment of its own.
All of them calibrated with the same samples as edgekit.
Their files were timed in the same rounds as the run's own files.
None of these toolkits distils or prunes: they compress the network as it is.
So each of their files is compared with two files of edgekit: the winner of its target, and the same network in int8.
"""


def _conditions(results: PeerResults) -> str:
    conditions = results.conditions
    return f"""
## Conditions, and how to run it again

`python -m benchmarks.peers` makes the files, and `python -m benchmarks.peers.page` writes this page.

| condition | |
|---|---|
| processor | {conditions["cpu"]} |
| threads | {conditions["threads"]} |
| protocol | {conditions["protocol"]} |
| intervals | {100 * results.confidence:g} % |
| noise | {"; ".join(conditions["disturbed"]) or "none observed"} |
"""


def _summary(results: PeerResults) -> str:
    rows = []
    for target, title in TARGETS.items():
        count = len(results.peer_files[target])
        for run_file in results.run_files[target] if count else []:
            better_files = [row for row in results.peer_files[target] if _comparison_with(row, run_file).is_better]
            opponent = "the winner" if run_file.is_winner else "the same network"
            names = ", ".join(f"`{row.name}`" for row in better_files) or "none"
            rows.append(
                [
                    title,
                    f"{opponent}, `{run_file.name}`",
                    str(count),
                    names,
                    _ratio_range([_comparison_with(row, run_file) for row in better_files]),
                ]
            )
        if not count or not any(run_file.is_winner for run_file in results.run_files[target]):
            reason = "–" if count == 0 else "none of our files is within the budget"
            rows.append([title, "the winner", str(count), reason, "–"])
    header = ("target", "compared with", "files", "better ones", "their p50 / ours")
    rule = (
        "A file counts as better if it is no less accurate on test and is also smaller or significantly faster. "
        "A smaller file counts even if it is slower."
    )
    return f"""
{rule}

{markdown(header, rows, text_columns=(0, 1, 3))}
"""


def _target_table(results: PeerResults, target: str) -> str:
    run_files, peer_files = results.run_files[target], results.peer_files[target]
    if not peer_files:
        return ""
    rows = [_run_file_row(row) for row in run_files]
    rows += [_peer_file_row(row) for row in sorted(peer_files, key=lambda row: (-row.accuracy_test, row.p50.p50_ms))]
    return f"## {TARGETS[target]}\n\n{markdown(HEADER, rows, text_columns=(0, 1))}"


def _run_file_row(row: RunFile) -> list[str]:
    how = "edgekit's winner" if row.is_winner else "edgekit's post-training int8 of the same network"
    return [f"**`{row.name}`**", how, *_figures(row), "", ""]


def _peer_file_row(row: PeerFile) -> list[str]:
    winner = next((comparison for comparison in row.comparisons if comparison.run_file.is_winner), None)
    same_network = next(
        (comparison for comparison in row.comparisons if comparison.run_file.name.startswith("baseline-")), None
    )
    return [
        f"`{row.name}`",
        row.how,
        *_figures(row),
        "" if winner is None else f"{winner.p50_ratio.ratio:.2f}",
        _ratio_text(same_network),
    ]


def _figures(row: RunFile | PeerFile) -> list[str]:
    return [f"{100 * row.accuracy_test:.2f} %", f"{row.bytes:,}", f"{_three_digits(1000 * row.p50.p50_ms)} µs"]


def _failures(results: PeerResults) -> str:
    rows = [
        [name, f"`{failure['file']}`" if failure["file"] else "–", failure["how"], failure["why"].replace("|", "/")]
        for name, peer_row in sorted(results.peers.items())
        for failure in peer_row["failures"]
    ]
    if not rows:
        return ""
    header = ("toolkit", "file", "how", "why")
    return f"## What could not be made or run\n\n{markdown(header, rows, text_columns=range(4))}"


def _methods(results: PeerResults) -> str:
    rows = [
        [
            name,
            peer_row["what"],
            ", ".join(f"`{each}`" for each in peer_row["packages"]),
            f"{peer_row['seconds']:,.0f} s",
        ]
        for name, peer_row in sorted(results.peers.items())
    ]
    header = ("toolkit", "what", "installed", "time")
    return f"""
## How each toolkit was run

The time is that of all calls of a toolkit together, including imports.

{markdown(header, rows, text_columns=(0, 1, 2))}
"""


def _comparison_with(row: PeerFile, run_file: RunFile) -> Comparison:
    return next(comparison for comparison in row.comparisons if comparison.run_file == run_file)


def _ratio_range(comparisons: list[Comparison]) -> str:
    """Return the lowest and the highest ratio of p50."""
    ratios = [comparison.p50_ratio.ratio for comparison in comparisons]
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "–"


def _ratio_text(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    ratio = comparison.p50_ratio
    return f"{ratio.ratio:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def _three_digits(value: float) -> str:
    """Format with three significant digits and without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
