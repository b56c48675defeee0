"""`edgekit compare`: what differs between two runs, and latencies only where they mean something."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.compare import _not_comparable, compare, show
from edgekit.result import RESULT
from tests.conftest import FinishedRun, run_edgekit
from tests.page import runs


@pytest.fixture
def other(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    return runs.copy(tiny_run, tmp_path)


def told(a: Path, b: Path) -> str:
    stream = io.StringIO()
    show(compare(a, b), Console(file=stream, width=240))
    return stream.getvalue()


def line(text: str, name: str) -> list[str]:
    found = next(each for each in text.splitlines() if f" {name} " in each and "│" in each)
    return [cell.strip() for cell in found.strip("│").split("│")]


def test_a_run_against_itself_differs_in_nothing(tiny_run: FinishedRun) -> None:
    text = told(tiny_run.folder, tiny_run.folder)
    for part in ("Config", "Versions", "Machine"):
        assert f"{part}: no difference" in text
    result = json.loads((tiny_run.folder / RESULT).read_text())
    for row in result["variants"]:
        cells = line(text, row["name"])
        assert cells[3] == "+0.00"
        assert cells[6] == "same"
        assert cells[-1] == "no difference (1×)"
    assert "not compared" not in text.lower()


def test_a_variant_that_became_slower_smaller_and_worse_is_told(tiny_run: FinishedRun, other: Path) -> None:
    name = "baseline-fp16-onnx"

    def change(metrics: dict[str, Any]) -> None:
        row = next(row for row in metrics["rows"] if row["name"] == name)
        row["p50_ms"] *= 2.5
        row["bytes"] //= 2
        row["accuracy_validation"] -= 0.03

    runs.edit(other, "benchmark", change)
    text = told(tiny_run.folder, other)
    cells = line(text, name)
    assert cells[3] == "-3.00"
    assert cells[6] == "0.5×"
    assert cells[-1] == "0.4×, slower"
    assert line(text, "baseline-fp32-onnx")[-1] == "no difference (1×)"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cpu", "Another Processor", "other processor ("),
        ("threads", 4, "other number of threads (1 / 4)"),
        ("python", "3.13.1", "other Python ("),
        ("protocol", "10 rounds, 99 timed calls", "other protocol ("),
    ],
)
def test_latencies_of_other_conditions_are_not_compared(
    name: str, value: Any, why: str, tiny_run: FinishedRun, other: Path
) -> None:
    runs.edit(other, "benchmark", lambda metrics: metrics["conditions"].update({name: value}))
    text = told(tiny_run.folder, other)
    assert "Latencies not compared:" in text
    assert why in text
    assert "p50" not in text
    assert "faster" not in text
    assert line(text, "baseline-fp32-onnx")[3] == "+0.00"  # accuracies are


def test_more_rounds_and_another_host_are_the_same_conditions() -> None:
    here = {"cpu": "A", "host": "one", "protocol": "30 rounds, 20 timed calls"}
    assert _not_comparable(here, {**here, "host": "two", "protocol": "150 rounds, 20 timed calls"}) == []


def test_another_interpreter_is_told_for_the_variants_that_it_ran(tiny_run: FinishedRun, other: Path) -> None:
    def change(metrics: dict[str, Any]) -> None:
        for row in metrics["rows"]:
            row["interpreter"] = row["interpreter"].replace("onnxruntime", "another")

    runs.edit(other, "benchmark", change)
    text = told(tiny_run.folder, other)
    assert line(text, "baseline-fp32-onnx")[-1].startswith("not compared: onnxruntime")
    assert line(text, "baseline-fp32-tflite")[-1] == "no difference (1×)"


def test_the_same_baseline_on_a_slower_day_is_told(tiny_run: FinishedRun, other: Path) -> None:
    def change(metrics: dict[str, Any]) -> None:
        for row in metrics["rows"]:
            row["p50_ms"] *= 3

    runs.edit(other, "benchmark", change)
    assert "The machine was not equally fast: the same baseline took 3× the time in B" in told(tiny_run.folder, other)


def test_the_command_compares_and_refuses_what_is_no_run(tiny_run: FinishedRun, tmp_path: Path) -> None:
    missed = runs.missed(tiny_run, tmp_path)
    done = run_edgekit("compare", str(tiny_run.folder), str(missed))
    assert done.returncode == 0, done.stderr
    assert "budget.size_bytes" in done.stdout
    assert "no variant inside the budget" in done.stdout
    assert "bundle." not in done.stdout  # a stage that one of them has not
    (missed / RESULT).unlink()
    assert run_edgekit("compare", str(tiny_run.folder), str(missed)).returncode == 4
    assert run_edgekit("compare", str(tiny_run.folder), "nothing").returncode == 2
