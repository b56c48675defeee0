"""What a notebook shows of the decisions: the table, and the check that winners follow from their evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.report import checks
from edgekit.report.sections import decisions, pruning, variants
from edgekit.stages.benchmark.decision import Decision
from tests.stages.benchmark.synthetic import EAGER_MS, budget, decided, row

ROWS = [row("student-fp32-tflite", size=900), row("pruned-fp32-tflite", size=800), row("student-fp32-onnx")]
TIMES = {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.0203, "student-fp32-onnx": 0.03}


def sealed(folder: Path, decision: Decision) -> Artifact:
    out = artifacts.begin(folder / "benchmark")
    (out / "file").write_text("x")
    config = {"confidence": 0.99, "tie_margin": 0.05, "budget": decision.metrics["budget"]}
    return artifacts.seal(out, stage="benchmark", source=None, data_digest="d", config=config, metrics=decision.metrics)


def shown(artifact: Artifact) -> list[tuple[Any, ...]]:
    return [tuple(line) for line in decisions.table(artifact).rows]


def test_the_table_shows_ties_and_the_first_that_is_beaten(tmp_path: Path) -> None:
    rows = [*ROWS, row("another-fp32-tflite"), row("baseline-fp32-tflite")]
    times = {**TIMES, "another-fp32-tflite": 0.03, "baseline-fp32-tflite": 0.9}
    artifact = sealed(tmp_path, decided(rows, times, budget(latency_p50_ms=1.0)))
    assert "the whole 99 % interval is above 1.05 times" in decisions.table(artifact).title
    notes = {(what, name): note for what, name, *_, note in shown(artifact)}
    assert notes == {
        ("winner of tflite", "student-fp32-tflite"): "in the tie",
        ("", "pruned-fp32-tflite"): "wins: tie: fewest bytes",
        ("", "another-fp32-tflite"): "slower",
        ("winner of onnx", "student-fp32-onnx"): "wins: fastest",
        ("winner over all targets", "pruned-fp32-tflite"): "wins: fastest",
        ("", "student-fp32-onnx"): "slower",
    }
    assert ("", "pruned-fp32-tflite", "0.0203", "1.01", "1.01 to 1.01", "800") in [line[:6] for line in shown(artifact)]


def test_the_table_of_a_replay_names_todays_winner(tmp_path: Path) -> None:
    recorded = {
        "winners": {"tflite": "student-fp32-tflite", "onnx": "student-fp32-onnx"},
        "too_slow": [],
        "buys_nothing": [],
    }
    notes = {line[1]: line[6] for line in shown(sealed(tmp_path, decided(ROWS, TIMES, recorded=recorded)))[:2]}
    assert notes == {"student-fp32-tflite": "wins: recorded", "pruned-fp32-tflite": "would win by today’s measurement"}


def test_zeros_stand_beside_the_network_without_them(tmp_path: Path) -> None:
    rows = [row("student-fp32-onnx"), {**row("sparse-fp32-onnx"), "zipped_bytes": 970}]
    rows += [row("student-int8-onnx"), {**row("sparse-int8-onnx"), "zipped_bytes": 500}]
    times = {**dict.fromkeys([each["name"] for each in rows], 0.02), "sparse-int8-onnx": 0.01}
    table = pruning.gained_table(sealed(tmp_path, decided(rows, times)))
    assert [tuple(line) for line in table.rows] == [
        ("sparse-fp32-onnx", "student-fp32-onnx", "1× (1–1)", "100.00\u00a0%", "97.00\u00a0%", "rejected: no speed-up"),
        ("sparse-int8-onnx", "student-int8-onnx", "2× (2–2)", "100.00\u00a0%", "50.00\u00a0%", "remains a candidate"),
    ]
    assert "above 1.05" in table.title


def test_where_no_zeros_were_measured_the_table_is_empty(tmp_path: Path) -> None:
    assert pruning.gained_table(sealed(tmp_path, decided(ROWS, TIMES))).rows == []


def test_a_winner_that_follows_from_its_evidence_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks.decisions_follow(sealed(tmp_path, decided(ROWS, TIMES, budget(latency_p50_ms=1.0))))
    assert capsys.readouterr().out.splitlines() == [
        "✓ winner of tflite: pruned-fp32-tflite, tie: fewest bytes of 2",
        "✓ winner of onnx: student-fp32-onnx, fastest",
        "✓ winner over all targets: pruned-fp32-tflite, fastest",
    ]


def test_a_winner_that_does_not_follow_is_a_fault(tmp_path: Path) -> None:
    found = decided(ROWS, TIMES)
    found.decisions[0]["chosen"] = "student-fp32-tflite"
    with pytest.raises(StageError, match="does not hold: winner of tflite: student-fp32-tflite"):
        checks.decisions_follow(sealed(tmp_path, found))


def test_a_replay_says_where_today_would_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {
        "winners": {"tflite": "student-fp32-tflite", "onnx": "student-fp32-onnx"},
        "too_slow": [],
        "buys_nothing": [],
    }
    checks.decisions_follow(sealed(tmp_path, decided(ROWS, TIMES, recorded=recorded)))
    assert capsys.readouterr().out.splitlines()[:2] == [
        "✗ winner of tflite: student-fp32-tflite, as recorded; today's measurement would decide pruned-fp32-tflite",
        "✓ winner of onnx: student-fp32-onnx, as recorded",
    ]


def test_the_table_of_variants_shows_bounds_and_only_speed_ups_that_are_established(tmp_path: Path) -> None:
    rows = [row("student-fp32-tflite", 0.97, samples=1000), row("baseline-fp32-tflite", samples=1000)]
    times = {"student-fp32-tflite": 0.02, "baseline-fp32-tflite": EAGER_MS}
    table = variants.table(sealed(tmp_path, decided(rows, times, noise=0.03)))
    assert "at 95 % confidence" in table.title
    lines = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    bounds = {name: line["at most, pp"] for name, line in lines.items()}
    assert bounds == {"baseline-eager": "–", "student-fp32-tflite": "+1.67", "baseline-fp32-tflite": "+0.27"}
    assert lines["baseline-eager"]["speed-up"] == "1×"
    assert lines["baseline-fp32-tflite"]["speed-up"] == "–"
    assert float(lines["student-fp32-tflite"]["speed-up"].rstrip("×")) == pytest.approx(100, rel=0.1)
    why = "accuracy drop 1.00 pp may be 1.67 pp (95 % confidence, 1000 samples), over 1 pp"
    assert lines["student-fp32-tflite"]["verdict"] == f"rejected: {why}"
