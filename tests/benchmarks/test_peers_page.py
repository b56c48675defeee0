"""The page of peers: what a finished run measured of their files, who is ahead, and what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness import NotRun
from benchmarks.peers import page
from benchmarks.peers.page import Comparison, PeerFile, PeerResults, RunFile
from benchmarks.peers.peer import RECORD, OutputFile, PeerOutput, PeersRecord, record_row
from benchmarks.peers.toolkits import PEERS
from edgekit.core import artifacts
from edgekit.device.measure.intervals import MedianInterval, RatioInterval
from tests.conftest import ROOT
from tests.stages.benchmark.synthetic import CALLS, ROUNDS, decided, row, timings

CONDITIONS = {"cpu": "a processor", "threads": 1, "protocol": "10 rounds, in turns", "disturbed": []}
WINNER = RunFile("student-int8-tflite", 0.81, 0.80, 50_000, MedianInterval(0.044, 0.043, 0.045), is_winner=True)
SAME = RunFile("baseline-int8-tflite", 0.80, 0.80, 86_000, MedianInterval(0.088, 0.087, 0.089), is_winner=False)


def peer_file(name: str, accuracy: float, size: int, slower: RatioInterval) -> PeerFile:
    beside = tuple(
        Comparison(run_file, 100 * (accuracy - run_file.accuracy_test), size / run_file.bytes, slower)
        for run_file in (WINNER, SAME)
    )
    p50 = MedianInterval(0.044 * slower.ratio, 0.044 * slower.low, 0.044 * slower.high)
    return PeerFile("tensorflow", name, "dynamic range", "tflite", accuracy, accuracy, size, p50, 12.34, beside)


def table_of(*rows: PeerFile) -> PeerResults:
    record = {
        "what": "its converter", "packages": ["tensorflow==2.21.0"], "seconds": 70.0, "tried": 3, "files": [],
        "failures": [{"file": "gone.tflite", "how": "int8", "why": "RuntimeError: a | b"}],
    }  # fmt: skip
    run_files: dict[str, list[RunFile]] = {"tflite": [WINNER, SAME], "openvino": [], "onnx": []}
    return PeerResults(
        run_files, {"tflite": list(rows), "openvino": [], "onnx": []}, {"tensorflow": record}, CONDITIONS, 0.99
    )


def test_the_page_says_where_edgekit_is_ahead_and_where_it_loses() -> None:
    behind = peer_file("behind.tflite", 0.79, 90_000, RatioInterval(2.0, 1.9, 2.1))
    ahead = peer_file("ahead.tflite", 0.81, 40_000, RatioInterval(1.0, 0.9, 1.1))
    text = page.page_text(table_of(behind, ahead), "cifar10")
    assert "| TFLite | the winner, `student-int8-tflite` | 2 | `ahead.tflite` | 1.00 to 1.00 |" in text
    assert "| OpenVINO | the winner | 0 | – | – |" in text
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert rows["`behind.tflite`"].endswith("| 88 µs | 2.00 | 2.00 (1.90–2.10) |")
    assert "| 40,000 | 44 µs |" in rows["`ahead.tflite`"]
    assert "| 50,000 | 44 µs |" in rows["**`student-int8-tflite`**"]
    assert "| tensorflow | `gone.tflite` | int8 | RuntimeError: a / b |" in text


@pytest.mark.parametrize(
    ("accuracy", "size", "slower", "beats"),
    [
        (0.80, 49_999, RatioInterval(1.0, 0.9, 1.1), True),
        (0.80, 50_000, RatioInterval(0.9, 0.85, 0.95), True),
        (0.80, 50_000, RatioInterval(0.9, 0.85, 1.05), False),  # not significantly faster
        (0.799, 40_000, RatioInterval(0.5, 0.4, 0.6), False),  # for less accuracy
        (0.90, 60_000, RatioInterval(1.5, 1.4, 1.6), False),  # accuracy alone, which is another trade
    ],
)
def test_a_file_beats_ours_where_it_gives_up_nothing(
    accuracy: float, size: int, slower: RatioInterval, beats: bool
) -> None:
    assert peer_file("x.tflite", accuracy, size, slower).comparisons[0].is_better is beats


def test_the_page_reads_as_the_docs_do(tmp_path: Path) -> None:
    rows = [peer_file(f"olive-{number}.onnx", 0.9, 40_000, RatioInterval(0.5, 0.4, 0.6)) for number in range(40)]
    path = tmp_path / "peers.md"
    disturbed = {**CONDITIONS, "disturbed": ["another process took 12 % of the processor"]}
    path.write_text(page.page_text(replace(table_of(*rows), conditions=disturbed), "cifar10"))
    assert "| noise | another process took 12 % of the processor |" in path.read_text()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished benchmark with one rival, beside the same network in int8 and a winner; and the peers' folder."""
    run, peers = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("peers")
    p50_ms = {"baseline-int8-onnx": 0.2, "student-int8-onnx": 0.1, "onnxruntime-static.onnx": 0.2}
    rows = [row("baseline-int8-onnx", 0.979, 900), row("student-int8-onnx", 0.978, 400)]
    decision, timed = decided(rows, p50_ms), timings(p50_ms)
    rival = {"name": "onnxruntime-static.onnx", "sha256": "1" * 64, "bytes": 900, "accuracy_test": 0.969}
    out = artifacts.begin(run / "benchmark")
    np.savez(out / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False, **timed.samples_ms)
    protocol = f"{ROUNDS} rounds, {CALLS} timed calls of each variant in a round, each opened anew {ROUNDS} times"
    metrics = {**decision.metrics, "rivals": [rival], "conditions": {**CONDITIONS, "protocol": protocol}}
    config = {"rounds": ROUNDS, "confidence": 0.99, "tie_margin": 0.05}
    artifacts.seal(out, stage="benchmark", source=None, data_digest="digits", config=config, metrics=metrics)

    path = peers / "onnxruntime" / "onnxruntime-static.onnx"
    path.parent.mkdir()
    path.write_bytes(bytes(900))

    def evaluate(path: Path) -> dict[str, Any]:
        return {"accuracy_validation": 0.5, "sha256": "1" * 64}

    peer_output = PeerOutput([OutputFile(path, "quantize_static", 2.0)], [], 3.0, 1)
    record = record_row(PEERS["onnxruntime"], peer_output, peers, evaluate)
    PeersRecord(peers, "a" * 64, {"onnxruntime": record}).write()
    return run, peers


def test_a_peers_file_is_held_against_ours_of_its_target(measured: tuple[Path, Path]) -> None:
    results = page.read_results(*measured)
    [row] = results.peer_files["onnx"]
    assert not results.peer_files["tflite"] and not results.peer_files["openvino"]
    winner, twin = row.comparisons
    assert (winner.run_file.name, winner.run_file.is_winner) == ("student-int8-onnx", True)
    assert winner.p50_ratio.ratio == pytest.approx(2) and winner.bytes_ratio == pytest.approx(2.25)
    assert winner.gain_pp == pytest.approx(0.1) and winner.better_in == ("accuracy",)
    assert twin.run_file.name == "baseline-int8-onnx" and not twin.run_file.is_winner
    assert twin.p50_ratio.ratio == pytest.approx(1) and twin.bytes_ratio == 1 and not twin.is_better
    assert row.p50.p50_ms == pytest.approx(0.2)


def test_the_command_writes_the_page(measured: tuple[Path, Path], tmp_path: Path) -> None:
    run, peers = measured
    words = [sys.executable, "-m", "benchmarks.peers.page", str(run), "--peers", str(peers)]
    path = tmp_path / "peers.md"
    subprocess.run([*words, "--page", str(path)], check=True, cwd=ROOT)
    assert "| `onnxruntime-static.onnx` | quantize_static | 96.90 % |" in path.read_text()


def test_files_that_the_run_did_not_measure_are_named(measured: tuple[Path, Path], tmp_path: Path) -> None:
    run, peers = measured
    record = json.loads((peers / RECORD).read_text())
    record["peers"]["onnxruntime"]["files"][0]["sha256"] = "0" * 64
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(NotRun, match=r"did not measure onnxruntime-static.onnx; run it again with the setting in"):
        page.read_results(run, tmp_path)


def test_a_run_without_peers_or_a_benchmark_is_reported(measured: tuple[Path, Path], tmp_path: Path) -> None:
    run, peers = measured
    with pytest.raises(NotRun, match=r"peers.json is not there; run python -m benchmarks.peers CONFIG --run"):
        page.read_results(run, tmp_path)
    with pytest.raises(NotRun, match="has no finished benchmark"):
        page.read_results(tmp_path, peers)
