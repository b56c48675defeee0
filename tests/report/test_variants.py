"""The table of variants: its content, and that terminal, notebook and page show the same."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.report.console import print_run
from edgekit.report.result import RESULT
from edgekit.report.sections import variants
from edgekit.report.sections.variants import page_grid
from tests.conftest import FinishedRun
from tests.stages.benchmark.synthetic import budget, decided, row

ROWS = [
    row("student-fp32-tflite", size=900),
    row("pruned-fp32-tflite", size=800),
    row("another-fp32-tflite"),
    row("student-int8-tflite", accuracy=0.5),
    row("student-fp32-onnx"),
]
P50_MS = {
    "student-fp32-tflite": 0.02,
    "pruned-fp32-tflite": 0.0203,
    "another-fp32-tflite": 0.03,
    "student-int8-tflite": 0.001,
    "student-fp32-onnx": 0.04,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> variants.Variants:
    """Of a benchmark whose winner on TFLite is in a tie with a larger file."""
    out = artifacts.begin(tmp_path_factory.mktemp("made") / "benchmark")
    decision = decided(ROWS, P50_MS, budget(latency_p50_ms=1.0))
    config = {"confidence": 0.99, "tie_margin": 0.05, "budget": decision.metrics["budget"]}
    metrics = decision.metrics
    return variants.variants_of_benchmark(
        artifacts.seal(out, stage="benchmark", source=None, data_digest="d", config=config, metrics=metrics)
    )


def test_the_baseline_comes_first_then_what_ships_then_what_might_have_then_what_was_rejected(
    table: variants.Variants,
) -> None:
    assert [(line.name, line.standing) for line in table.lines] == [
        ("baseline-eager", "baseline"),
        ("pruned-fp32-tflite", "ships"),
        ("student-fp32-onnx", "ships"),
        ("student-fp32-tflite", "inside"),
        ("another-fp32-tflite", "inside"),
        ("student-int8-tflite", "out"),
    ]


def test_every_line_says_why_it_ended_so(table: variants.Variants) -> None:
    text = {line.name: line.verdict for line in table.lines}
    assert text.pop("student-int8-tflite").startswith("rejected: accuracy drop 48.00 pp")
    assert text == {
        "baseline-eager": "baseline",
        "pruned-fp32-tflite": "ships for tflite: tie, won by fewest bytes",
        "student-fp32-onnx": "ships for onnx: fastest",
        "student-fp32-tflite": "inside the budget: the fastest, but in a tie with a file with fewer bytes",
        "another-fp32-tflite": "inside the budget: slower, 1.5× (1.5–1.5) the time of the fastest",
    }


def test_the_figures_are_those_of_the_rows(table: variants.Variants) -> None:
    result = next(line for line in table.lines if line.name == "pruned-fp32-tflite")
    assert (result.bytes, result.p50_ms, result.drop_pp) == (800, pytest.approx(0.0203), 0.0)
    assert result.speedup is not None and result.speedup[0] == pytest.approx(2.0 / 0.0203, rel=1e-3)
    before = table.lines[0]
    assert (before.drop_pp, before.bound_pp, before.speedup) == (0.0, None, None)
    assert "at 95 % confidence" in table.caption


def by_heading(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, dict[str, str]]:
    return {str(cells[0]): dict(zip(headings, map(str, cells), strict=True)) for cells in rows}


def on_the_console(result: dict[str, Any], folder: Path) -> dict[str, dict[str, str]]:
    stream = io.StringIO()
    print_run(result, folder, Console(file=stream, width=400))  # type: ignore[arg-type]
    lines = stream.getvalue().splitlines()
    head = next(line for line in lines if line.startswith("┃"))
    headings = [cell.strip() for cell in head.strip("┃").split("┃")]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    return by_heading(headings, rows)


def test_console_notebook_and_page_show_the_same_variants_figures_and_verdicts(tiny_run: FinishedRun) -> None:
    result = json.loads((tiny_run.folder / RESULT).read_text())
    benchmark: Artifact = artifacts.load(tiny_run.folder / "benchmark")
    notebook, page = variants.table(benchmark), page_grid(result)
    shown = {
        "console": on_the_console(result, tiny_run.folder),
        "notebook": by_heading(notebook.columns, notebook.rows),
        "page": by_heading(page.columns, [line.cells for line in page.lines]),
    }
    assert set(shown["page"]) == {one["name"] for one in result["variants"]}
    assert list(shown["console"]) == list(shown["notebook"]) == list(shown["page"])
    assert shown["console"] == shown["notebook"] == shown["page"]


def test_a_second_accuracy_stands_on_the_console_where_it_is_wide_enough(tiny_run: FinishedRun) -> None:
    result = json.loads((tiny_run.folder / RESULT).read_text())
    for one in result["variants"]:
        one["second_accuracy"] = {"metric": "mAP@0.5:0.95", "validation": 0.1234, "test": 0.2345}
    shown = {}
    for width in (120, 240):
        stream = io.StringIO()
        print_run(result, tiny_run.folder, Console(file=stream, width=width))
        shown[width] = stream.getvalue()
    assert shown[240].count("12.34") == shown[240].count("23.45") == len(result["variants"])
    assert shown[240].count("mAP@0.5:0.95") == 2
    assert "mAP" not in shown[120] and "12.34" not in shown[120]
