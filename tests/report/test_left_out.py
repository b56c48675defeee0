"""Variants that were left out appear wherever a finished run is shown: verdict, comparison and MLflow."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.core import left_out
from edgekit.report import mlflow, verdict
from edgekit.report.comparison import RunComparison, print_comparison

Row = dict[str, Any]


def lost(precision: str, kind: str, reason: str, target: str = "onnx") -> Row:
    name = f"baseline-{precision}-{target}"
    return {
        "name": name, "model": "baseline", "precision": precision, "target": target, "kind": kind, "reason": reason,
    }  # fmt: skip


LOST = [
    lost("fp32", "operator", "svd: no such operator [opset 18]"),
    lost("int8", "rests", "it is made from baseline-fp32-onnx, which was left out"),
    lost("dynamic", "numerics", "SNR 3.0 dB, at least 20 dB required", "tflite"),
]
KEPT = {
    "name": "baseline-fp32-onnx", "accuracy_validation": 0.9, "bytes": 1000, "p50_ms": 1.0, "interpreter": "onnx",
}  # fmt: skip


def result(*rows: Row) -> Row:
    """The parts of a result with a missed budget that the message needs."""
    return {
        "name": "tiny", "version": "1.0.0", "verdict": {"met": False}, "nearest_miss": None, "budget": {}, "unmet": {},
        "winners": {}, "bundles": {}, "stages": {}, "variants": [], "left_out": list(rows), "edgekit": "0.1.0",
        "data_digest": "d",
    }  # fmt: skip


def test_the_verdict_has_a_line_for_each_failure() -> None:
    assert verdict.left_out_lines(result(*LOST)) == [  # type: ignore[arg-type]
        "baseline-fp32-onnx (and with it baseline-int8-onnx): svd: no such operator [opset 18]",
        "baseline-dynamic-tflite: SNR 3.0 dB, at least 20 dB required",
    ]
    assert verdict.left_out_lines(result()) == []  # type: ignore[arg-type]


def test_the_summary_of_a_finished_run_needs_no_numpy() -> None:
    code = "import sys, edgekit.report.summary; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" not in done.stdout.split()


@pytest.mark.parametrize("letter", ["A", "B"])
def test_a_variant_of_one_run_says_why_the_other_has_none(letter: str) -> None:
    other = "B" if letter == "A" else "A"
    ran, without = result(), result(*LOST)
    for each in (ran, without):
        each["stages"] = {name: {"digest": str(id(each)), "finished": "now"} for name in ("profile", "benchmark")}
    a, b = (ran, without) if letter == "A" else (without, ran)
    never = {**KEPT, "name": "baseline-w8-onnx"}
    rows = [(row["name"], *((row, None) if letter == "A" else (None, row))) for row in (KEPT, never)]
    outcome = RunComparison(
        a=a, b=b, folders=(Path("a"), Path("b")), config={}, versions={}, machine={}, variants=rows,
        no_latencies=["another machine"], no_accuracies="", margin=0.05,
    )  # fmt: skip
    stream = io.StringIO()
    print_comparison(outcome, Console(file=stream, width=240), show_all=True)
    kept, not_requested = (
        next(line for line in stream.getvalue().splitlines() if row["name"] in line) for row in (KEPT, never)
    )
    assert f"only in {letter}; left out of {other}: svd: no such operator [opset 18]" in kept
    assert f"only in {letter}" in not_requested and "left out" not in not_requested


def test_it_is_a_tag_in_mlflow() -> None:
    assert mlflow._tags(result(*LOST))["edgekit.left_out"] == ", ".join(row["name"] for row in LOST)
    assert mlflow._tags(result())["edgekit.left_out"] == ""
    many = [lost(f"fp{number}", "operator", "no") for number in range(99)]
    assert len(mlflow._tags(result(*many))["edgekit.left_out"]) == mlflow.MAX_VALUE_LENGTH


def test_the_lines_name_what_rests_on_the_lost_float_model_alone() -> None:
    [line] = left_out.describe_left_out([LOST[2], lost("w8", "rests", "it is made from another")])
    assert line == "baseline-dynamic-tflite: SNR 3.0 dB, at least 20 dB required"
