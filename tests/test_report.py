"""The verdict table: every variant with its own figures."""

from __future__ import annotations

import io
import json

from rich.console import Console

from edgekit.report import show
from edgekit.result import RESULT
from edgekit.tables import count, milliseconds, percent, times
from tests.conftest import FinishedRun


def test_every_variants_line_holds_its_figures_and_its_speed_up_over_eager(tiny_run: FinishedRun) -> None:
    result = json.loads((tiny_run.folder / RESULT).read_text())
    stream = io.StringIO()
    show(result, tiny_run.folder, Console(file=stream, width=200))
    lines = stream.getvalue().splitlines()
    eager = result["variants"][0]
    for row in result["variants"]:
        line = next(line for line in lines if f" {row['name']} " in line)
        cells = [cell.strip() for cell in line.split("│")]
        figures = [percent(row["accuracy_validation"]), percent(row["accuracy_test"]), count(row["bytes"])]
        figures += [milliseconds(row[f"p{rank}_ms"]) for rank in (50, 95, 99)]
        figures.append(times(eager["p50_ms"] / row["p50_ms"]))
        assert [figure for figure in figures if figure not in cells] == [], row["name"]
