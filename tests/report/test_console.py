"""The verdict table: every variant with its own figures."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from edgekit.report.console import print_run
from edgekit.report.formatting import count, milliseconds, percent, percentage_points, times
from edgekit.report.result import RESULT
from tests.conftest import FinishedRun


def test_every_variants_line_holds_its_figures_and_its_speed_up_over_eager(tiny_run: FinishedRun) -> None:

    def speed_up(row: dict[str, Any], eager: dict[str, Any]) -> str:
        assert row["speedup"] == pytest.approx(eager["p50_ms"] / row["p50_ms"], rel=0.5)
        return "–" if row["speedup_low"] <= 1 <= row["speedup_high"] else times(row["speedup"])

    result = json.loads((tiny_run.folder / RESULT).read_text())
    stream = io.StringIO()
    print_run(result, tiny_run.folder, Console(file=stream, width=200))
    lines = stream.getvalue().splitlines()
    eager = result["variants"][0]
    for row in result["variants"]:
        line = next(line for line in lines if f" {row['name']} " in line)
        cells = [cell.strip() for cell in line.split("│")]
        figures = [percent(row["accuracy_validation"]), percent(row["accuracy_test"]), count(row["bytes"])]
        figures += [milliseconds(row[f"p{rank}_ms"]) for rank in (50, 95, 99)]
        figures += [percentage_points(row["bound_pp"]), speed_up(row, eager)] if row is not eager else ["1×"]
        assert [figure for figure in figures if figure not in cells] == [], row["name"]
