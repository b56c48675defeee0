"""`edgekit compare`: the differences between two runs, and latencies only if they are comparable."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.report.comparison import compare_runs, print_comparison
from edgekit.report.result import RESULT
from edgekit.stages.benchmark.stage import protocol
from tests.conftest import FinishedRun, run_edgekit
from tests.report.html import runs


@pytest.fixture
def calm(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    """The shared run as if nothing had disturbed its measurement, which beside other tests is seldom so."""
    folder = runs.copy(tiny_run, tmp_path / "calm")
    runs.edit(folder, "benchmark", lambda metrics: metrics["conditions"].update(disturbed=[]))
    return folder


@pytest.fixture
def other(calm: Path, tmp_path: Path) -> Path:
    """The same again, to be changed."""
    folder = tmp_path / "other" / calm.name
    shutil.copytree(calm, folder)
    return folder


def comparison_text(a: Path, b: Path) -> str:
    stream = io.StringIO()
    print_comparison(compare_runs(a, b), Console(file=stream, width=240), show_all=True)
    return stream.getvalue()


def line(text: str, name: str) -> list[str]:
    result = next(each for each in text.splitlines() if f" {name} " in each and "│" in each)
    return [cell.strip() for cell in result.strip("│").split("│")]


def test_a_run_against_itself_differs_in_nothing(calm: Path) -> None:
    text = comparison_text(calm, calm)
    assert "The same in both: config, versions, machine." in text
    result = json.loads((calm / RESULT).read_text())
    for row in result["variants"]:
        cells = line(text, row["name"])
        assert cells[3] == "+0.00"
        assert cells[6] == "same"
        assert cells[-1] == "no difference (1×)"
    assert "not compared" not in text.lower()


def test_only_what_ships_is_shown_unless_all_is_asked_for(calm: Path) -> None:
    result = json.loads((calm / RESULT).read_text())
    names = {row["name"] for row in result["variants"]}
    shown = {"baseline-eager", *result["winners"].values()}
    done = run_edgekit("compare", str(calm), str(calm)).stdout
    assert {name for name in names if f" {name} " in done} == shown
    assert f"Not shown: {len(names - shown)} variants that ship in neither run; --all shows them." in done
    done = run_edgekit("compare", str(calm), str(calm), "--all").stdout
    assert {name for name in names if f" {name} " in done} == names and "Not shown" not in done


def test_a_variant_that_became_slower_smaller_and_worse_is_reported(calm: Path, other: Path) -> None:
    name = "baseline-fp16-onnx"

    def change(metrics: dict[str, Any]) -> None:
        row = next(row for row in metrics["rows"] if row["name"] == name)
        row["p50_ms"] *= 2.5
        row["bytes"] //= 2
        row["accuracy_validation"] -= 0.03

    runs.edit(other, "benchmark", change)
    text = comparison_text(calm, other)
    cells = line(text, name)
    assert cells[3] == "-3.00"
    assert cells[6] == "0.5×"
    assert cells[-1] == "0.4×, slower"
    assert line(text, "baseline-fp32-onnx")[-1] == "no difference (1×)"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cpu", "Another Processor", "processor: "),
        ("threads", 4, "threads: 1 and 4"),
        ("python", "3.13.1", "Python: "),
        ("calls_per_round", 99, "calls in a round: 5 and 99"),
        ("warmup_per_round", 9, "untimed calls before each round: 2 and 9"),
    ],
)
def test_latencies_of_other_conditions_are_not_compared(
    name: str, value: Any, why: str, calm: Path, other: Path
) -> None:
    runs.edit(other, "benchmark", lambda metrics: metrics["conditions"].update({name: value}))
    text = comparison_text(calm, other)
    assert "Latencies not compared:" in text
    assert why in text
    assert "p50" not in text
    assert "faster" not in text
    assert line(text, "baseline-fp32-onnx")[3] == "+0.00"  # accuracies are


def test_more_rounds_are_the_same_conditions(calm: Path, other: Path) -> None:
    words = protocol([10, 150], [10, 50], 5, 2)
    runs.edit(other, "benchmark", lambda metrics: metrics["conditions"].update(protocol=words))
    assert "not compared" not in comparison_text(calm, other).lower()


def test_a_disturbed_measurement_is_not_compared(calm: Path, other: Path) -> None:
    runs.edit(other, "benchmark", lambda metrics: metrics["conditions"].update(disturbed=["others took 90 %"]))
    assert "the second measurement was noisy: others took 90 %" in comparison_text(calm, other)


def test_another_interpreter_is_reported_for_the_variants_that_it_ran(calm: Path, other: Path) -> None:
    def change(metrics: dict[str, Any]) -> None:
        for row in metrics["rows"]:
            row["interpreter"] = row["interpreter"].replace("onnxruntime", "another")

    runs.edit(other, "benchmark", change)
    text = comparison_text(calm, other)
    assert line(text, "baseline-fp32-onnx")[-1].startswith("not compared: onnxruntime")
    assert line(text, "baseline-fp32-tflite")[-1] == "no difference (1×)"


def test_the_same_baseline_on_a_slower_day_is_reported(calm: Path, other: Path) -> None:
    def change(metrics: dict[str, Any]) -> None:
        for row in metrics["rows"]:
            row["p50_ms"] *= 3

    runs.edit(other, "benchmark", change)
    assert "The machine was not equally fast: the same baseline took 3× the time in B" in comparison_text(calm, other)


def test_the_command_compares_and_refuses_what_is_no_run(tiny_run: FinishedRun, tmp_path: Path) -> None:
    missed = runs.missed(tiny_run, tmp_path)
    done = run_edgekit("compare", str(tiny_run.folder), str(missed))
    assert done.returncode == 0, done.stderr
    assert "budget.size_bytes" in done.stdout
    assert "no variant meets the budget" in done.stdout
    assert "bundle." not in done.stdout  # a stage that one of them has not
    (missed / RESULT).unlink()
    assert run_edgekit("compare", str(tiny_run.folder), str(missed)).returncode == 4
    assert run_edgekit("compare", str(tiny_run.folder), "nothing").returncode == 2
