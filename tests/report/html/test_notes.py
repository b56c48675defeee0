"""What the page says besides the verdict: a second accuracy, notes about the data, and outputs that share a scale."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.schema.result import validate_result
from edgekit.models.output_check import SHARED_SCALE
from edgekit.report import html
from edgekit.report.formatting import percent
from edgekit.report.mlflow import metrics
from edgekit.report.result import RESULT
from edgekit.report.sections import quantization, variants
from tests.conftest import FinishedRun
from tests.report.html import runs
from tests.report.html.test_page import Read

SKIPPED = "skipped 2 boxes, empty or outside: <train>/[red] & more.png"


@pytest.fixture(scope="module")
def folder(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as of a detection: other figures in its rows, and notes."""
    folder = runs.copy(tiny_run, tmp_path_factory.mktemp("notes"))

    def second(content: dict[str, Any]) -> None:
        for number, row in enumerate(content["rows"]):
            figures = {"validation": 0.5055 - number / 100, "test": 0.0033 + number / 100}  # no other has such decimals
            row["second_accuracy"] = {"metric": "mAP@0.5:0.95", **figures}

    runs.edit(folder, "benchmark", second)
    runs.edit(folder, "profile", lambda found: found.update(data_notes=[SKIPPED]))
    runs.edit(folder, "quantize", lambda found: found.update(shared_scale=SHARED_SCALE))
    html.write_page(folder)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / RESULT).read_text())


def test_a_second_accuracy_stands_in_every_row_of_page_and_notebook(folder: Path, result: dict[str, Any]) -> None:
    validate_result(result)
    page, notebook = Read(folder / html.PAGE), variants.table(artifacts.load(folder / "benchmark"))
    cells = {row[0]: row for row in notebook.rows}
    for row in result["variants"]:
        expected = [percent(row["second_accuracy"][split]) for split in ("validation", "test")]
        shown = page.row(row["name"], percent(row["accuracy_test"]))
        for outcome in (shown, list(cells[row["name"]])):
            place = outcome.index(expected[0])
            assert [*outcome[place : place + 2]] == expected, row["name"]
    assert [head for head in notebook.columns if "mAP" in head] == ["val. mAP@0.5:0.95", "test mAP@0.5:0.95"]


def test_mlflow_gets_it_as_two_figures(result: dict[str, Any]) -> None:
    outcome = dict(metrics(result))  # type: ignore[arg-type]
    baseline: Mapping[str, Any] = result["variants"][0]
    for split in ("validation", "test"):
        assert outcome[f"{baseline['name']}/second_accuracy_{split}"] == baseline["second_accuracy"][split]
    assert not [name for name in outcome if "metric" in name]


def test_what_was_skipped_in_the_data_stands_on_the_page_and_in_the_result(
    folder: Path, result: dict[str, Any]
) -> None:
    assert result["data_notes"] == [SKIPPED]
    read = Read(folder / html.PAGE)
    assert SKIPPED in read.text and "Data: what was skipped or changed (1)" in read.text


def test_outputs_that_share_a_scale_are_noted_on_the_page_and_in_notebook_04(folder: Path) -> None:
    assert SHARED_SCALE[1:] in Read(folder / html.PAGE).text
    assert SHARED_SCALE in quantization.table(artifacts.load(folder / "quantize")).title


def test_without_notes_the_page_shows_none_of_them(tiny_run: FinishedRun) -> None:
    html.write_page(tiny_run.folder)
    text = Read(tiny_run.folder / html.PAGE).text
    assert not [printed for printed in ("mAP", "skipped or changed", SHARED_SCALE[1:]) if printed in text]
    outcome = json.loads((tiny_run.folder / RESULT).read_text())
    assert "data_notes" not in outcome and not [row for row in outcome["variants"] if "second_accuracy" in row]
    assert SHARED_SCALE not in quantization.table(artifacts.load(tiny_run.folder / "quantize")).title
