"""The devices whose latencies decided, in the notebook and on the page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pydantic import TypeAdapter

from edgekit.core.schema.devices import DeviceClass, DeviceLatency, DeviceRecord
from edgekit.core.schema.devices import DeviceClass as Schema
from edgekit.report.sections import devices

ROWS = [{"name": "small", "p50_ms": 0.044}, {"name": "large", "p50_ms": 0.1}, {"name": "never sent", "p50_ms": 9.0}]


def timed(name: str, p50_ms: float, ratio: float) -> DeviceLatency:
    ends = {"low_ms": 0.98 * p50_ms, "high_ms": 1.02 * p50_ms, "ratio_low": 0.98 * ratio, "ratio_high": 1.02 * ratio}
    row = {"name": name, "interpreter": "litert 2.1.6", "p50_ms": p50_ms, "ratio": ratio, **ends}
    return cast("DeviceLatency", row)


def device(host: str, pace: float, *disturbed: str) -> DeviceRecord:
    facts = {"cpu": "Cortex-A72", "machine": "aarch64", "system": "Linux 6.12", "python": "3.11.2", "numpy": "2.1.0"}
    rows = [timed("large", 1.5 * pace, 3.0), timed("small", 0.5 * pace, 1.0)]
    more = {"rounds": 30, "openings": 10, "disturbed": list(disturbed), "variants": rows}
    return cast("DeviceRecord", {"host": host, **facts, **more})


PI4: DeviceClass = {
    "where": "pi4",
    "slowest": "door-2",
    "devices": [device("door-1", 1.0), device("door-2", 2.0, "it was throttled")],
}


def notebook(metrics: dict[str, Any]) -> Any:
    return devices.table(cast("Any", SimpleNamespace(metrics={"decisions": [], **metrics})))


def test_notebook_and_page_show_the_same_rows_the_fastest_first() -> None:
    shown = notebook({"devices": PI4, "rows": ROWS})
    grid = devices.page_grid(cast("Any", {"devices": PI4, "variants": ROWS, "decisions": []}))
    assert grid is not None and [tuple(line.cells) for line in grid.lines] == shown.rows
    assert tuple(grid.columns) == shown.columns
    assert shown.columns[1:4] == ("p50, ms here", "p50, ms on door-1", "p50, ms on door-2, decides")
    assert shown.rows[0] == ("small", "0.044", "0.5 (0.49–0.51)", "1 (0.98–1.02)", "1.00 (0.98–1.02)")
    assert [row[0] for row in shown.rows] == ["small", "large"]
    assert "the slowest device of class pi4, door-2: " in shown.title and "noisy: it was throttled" in shown.title


def test_where_this_machine_decided_the_notebook_says_so_and_the_page_nothing() -> None:
    assert notebook({"rows": ROWS}).title == "this machine decided: benchmark.where names no class of devices"
    assert devices.page_grid(cast("Any", {"variants": ROWS})) is None


def test_the_rows_are_those_of_the_schema() -> None:
    TypeAdapter(Schema).validate_python(PI4)
