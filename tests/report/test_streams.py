"""The table of streaming accuracy: the same in the notebook and on the page, with its number of windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pydantic import TypeAdapter

from edgekit.core.schema.streams import SmoothingResult, StreamResult
from edgekit.core.schema.streams import StreamResult as Schema
from edgekit.report.sections import streams as streams_section


def way(smoothing: dict[str, Any] | None, **more: Any) -> SmoothingResult:
    figures = {"accuracy": 0.95, "detected": 9, "delay_windows": 1.25, "false_alarms": 2, "per_hour": 4.0}
    more = {"per_hour_at_most": 12.6, "alarmed_share": 0.01, "kept": False, "reason": "more false alarms", **more}
    return cast("SmoothingResult", {"smoothing": smoothing, **figures, **more})


KEPT = way({"method": "majority", "windows": 5}, kept=True, reason="")
STREAM: StreamResult = {
    "split": "validation", "windows": 1200, "pieces": 30, "hop": 4000, "hop_s": 0.25, "background": "street",
    "events": 10, "hours": 0.5, "windows_outside": 7200, "tolerance_windows": 2, "repeat_windows": 2,
    "confidence": 0.95, "rule": "fewest false alarms", "candidates": [way(None), KEPT],
}  # fmt: skip


def shown(streams: dict[str, Any]) -> Any:
    return streams_section.table(cast("Any", SimpleNamespace(metrics={"streams": streams})))


def test_notebook_and_page_show_the_same_rows() -> None:
    notebook, grid = (
        shown({"tflite": STREAM}),
        streams_section.page_grid(cast("Any", {"streams": {"tflite": STREAM}})),
    )
    assert grid is not None and [tuple(line.cells) for line in grid.lines] == notebook.rows
    assert notebook.rows == [
        ("tflite", "no smoothing", "95.00\u00a0%", "9 of 10", "1.2", "2", "4", "12.6", "more false alarms"),
        ("", "majority of 5 windows", "95.00\u00a0%", "9 of 10", "1.2", "2", "4", "12.6", "selected"),
    ]
    assert "1,200 validation windows in the order of time, in 30 pieces; 0.5 h outside of events" in grid.caption
    assert "at 95 % confidence; selected by: fewest false alarms" in notebook.title


def test_without_a_rate_or_a_background_no_rate_is_shown() -> None:
    unrated = {**STREAM, "hop_s": None, "hours": None, "candidates": [way(None, per_hour=None, per_hour_at_most=None)]}
    assert shown({"onnx": unrated}).rows[0][5:8] == ("2", "–", "–")
    assert "7,200 windows outside of events; no rate is known" in shown({"onnx": unrated}).title
    nothing = dict.fromkeys(("detected", "delay_windows", "false_alarms", "per_hour", "per_hour_at_most"))
    classes = {**STREAM, "background": None, "events": None, "candidates": [way(None, **nothing)]}
    assert shown({"onnx": classes}).rows[0][3:8] == ("–",) * 5
    assert "no class is the background" in shown({"onnx": classes}).title


def test_without_an_order_in_time_there_is_no_table_on_the_page_and_the_notebook_says_so() -> None:
    assert streams_section.page_grid(cast("Any", {"streams": {}})) is None
    assert shown({}).title == "validation has no order in time, so answers to a stream cannot be evaluated"


def test_the_rows_are_those_of_the_schema() -> None:
    TypeAdapter(Schema).validate_python(STREAM)
