"""The checks of the notebooks never fail silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.config import Budget
from edgekit.core.errors import BudgetMissed, StageError, TrustError
from edgekit.report import checks


def test_at_least_and_at_most_raise_on_the_wrong_side(capsys: pytest.CaptureFixture[str]) -> None:
    checks.at_least("accuracy", 0.9, 0.9, "train longer")
    checks.at_most("drop", 1.0, 1.0, "prune less")
    assert capsys.readouterr().out.splitlines() == ["✓ accuracy: 0.9 ≥ 0.9", "✓ drop: 1 ≤ 1"]
    with pytest.raises(StageError, match="accuracy: got 0.8, expected at least 0.9; train longer"):
        checks.at_least("accuracy", 0.8, 0.9, "train longer")
    with pytest.raises(StageError, match="drop: got 2, expected at most 1; prune less"):
        checks.at_most("drop", 2.0, 1.0, "prune less")


@pytest.mark.parametrize("gate", [checks.at_least, checks.at_most])
def test_nan_never_passes(gate: object) -> None:
    with pytest.raises(StageError):
        gate("accuracy", float("nan"), 0.5, "look for the cause")  # type: ignore[operator]


def test_holds_raises_when_it_does_not() -> None:
    with pytest.raises(StageError, match="does not hold: one is two; count again"):
        checks.holds("one is two", False, "count again")


def seal(folder: Path, metrics: dict[str, object]) -> artifacts.Artifact:
    out = artifacts.begin(folder / "benchmark")
    (out / "file").write_text("x")
    return artifacts.seal(
        out, stage="benchmark", source=None, data_digest="d", config={"targets": ["onnx", "tflite"]}, metrics=metrics
    )


def test_whole_names_the_file_that_changed(tmp_path: Path) -> None:
    sealed = seal(tmp_path, {})
    checks.files_match(sealed)
    (sealed.path / "file").write_text("y")
    with pytest.raises(TrustError, match="file"):
        checks.files_match(sealed)


BUDGET = {"accuracy_drop_pp": 1.0, "latency_p50_ms": 0.4, "size_bytes": 800}


def test_a_missed_budget_raises_with_the_nearest_miss(tmp_path: Path) -> None:
    nearest = {"name": "a-int8-onnx", "p50_ms": 0.5, "bytes": 1000, "bound_pp": 1.5, "reasons": ["too large"]}
    sealed = seal(tmp_path, {"verdict": {"met": False}, "nearest_miss": nearest, "winners": {}, "budget": BUDGET})
    by = r"over by 0.5 pp of accuracy and 0.1 ms \(25%\) of p50 and 200 bytes \(25%\): too large"
    with pytest.raises(BudgetMissed, match=rf"nearest miss is a-int8-onnx \(p50 0.5 ms, 1,000 bytes\), {by}"):
        checks.budget_met(sealed)


def test_a_miss_of_one_targets_limits_names_those_limits() -> None:
    beside = {"name": "theirs.tflite", "limit": 0.5, "ratio": 0.6, "ratio_low": 0.59, "ratio_high": 0.61}
    nearest: Any = {"name": "a-int8-onnx", "p50_ms": 0.5, "bytes": 1000, "bound_pp": 0.5, "reasons": ["too slow"]}
    nearest |= {"limits": {"latency_p50_ms": None, "size_bytes": 900, "beside": beside}}
    budget: Any = BUDGET | {"latency_p50_ms": None, "latency_p50": {"ratio": 0.5, "of": "theirs.tflite"}}
    text = checks.missed_message(nearest, budget)
    assert "over by 20% of p50, which is 0.6 (0.59 to 0.61) times that of theirs.tflite and 100 bytes (11%)" in text


def test_a_met_budget_says_which_target_has_no_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = {"met": True, "winner": "a-int8-onnx", "drop_validation_pp": 0.5}
    verdict |= {"bound_validation_pp": 1.25, "confidence": 0.95}
    nearest = {"name": "a-int8-tflite", "p50_ms": 0.5, "bytes": 80, "bound_pp": 0.5, "reasons": ["too slow"]}
    metrics = {"verdict": verdict, "nearest_miss": None, "unmet": {"tflite": nearest}, "budget": BUDGET}
    checks.budget_met(seal(tmp_path, metrics))
    text = capsys.readouterr().out
    assert "✓ budget met by a-int8-onnx: +0.50 pp drop on validation, at most +1.25 pp at 95 % confidence" in text
    assert "✗ tflite: no variant meets the budget; the nearest miss is a-int8-tflite" in text
    assert "over by 0.1 ms (25%) of p50" in text


@pytest.mark.parametrize(
    ("samples", "output"),
    [
        (359, "✓ 359 validation samples can show a drop of 1 pp or less at 95 % confidence"),
        (100, "✗ budget of 1 pp: 100 samples cannot show less than 2.63 pp, even if every"),
    ],
)
def test_a_budget_that_the_samples_cannot_show_is_noted(
    samples: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checks.budget_possible(Budget(accuracy_drop_pp=1.0), samples)
    assert capsys.readouterr().out.startswith(output)
