"""How the winners and the baseline fare under load: every run of LoadGen, and the highest rate that was held."""

from __future__ import annotations

from typing import Any

from edgekit.core.schema.loads import LoadRate, Loads, ends_ms
from edgekit.core.schema.result import Result
from edgekit.report.formatting import count, milliseconds, milliseconds_with_ends, percent
from edgekit.report.html.rows import Grid, Line
from edgekit.report.tables.loads import marks, nothing_driven

SCENARIOS = {"single_stream": "single stream", "server": "server, Poisson", "offline": "offline"}
RANKS = (50, 90, 95, 99)
MEBI = 2**20


def build_section(result: Result, confidence: float) -> dict[str, Any] | None:
    """`grids` and `failed`, a line each; None where nothing was driven. `confidence` is that of the intervals."""
    loads = result["loads"]
    if loads.get("skipped"):
        return {"grids": [], "failed": [f"{nothing_driven(loads)}."]}
    if not loads["runs"] and not loads["failed"]:
        return None
    grids = [rates(loads), latencies(loads, confidence), throughput(loads)]
    failed = [f"{row['name']} failed under load: {row['reason']}" for row in loads["failed"]]
    return {"grids": [each for each in grids if each is not None], "failed": failed}


def rates(loads: Loads) -> Grid | None:
    """The highest rate of Poisson arrivals whose p99 stays within the bound."""
    rows = loads["rates"]
    lines = [
        Line(
            (
                row["name"],
                count(row["rate_per_s"]),
                _held_ms(row),
                str(len(row["trials"])),
                "; ".join([row["why"], *marks(row)]),
            ),
            "out" if row["rate_per_s"] is None else "",
        )
        for row in rows
    ]
    columns = ("driven", "highest rate, 1/s", "p99 there, ms", "trials", "how the search ended")
    caption = f"The highest rate of Poisson arrivals whose p99 stays within {loads['p99_bound_ms']:g} ms"
    return Grid(caption, columns, lines, frozenset(columns[1:4]), frozenset(columns[4:])) if rows else None


def latencies(loads: Loads, confidence: float) -> Grid | None:
    """Percentiles with their intervals; not of offline, where they only say how long the whole took."""
    rows = [row for row in loads["runs"] if row["scenario"] != "offline"]
    lines = [
        Line(
            (
                row["name"],
                SCENARIOS[row["scenario"]],
                *(milliseconds_with_ends(*ends_ms(row, rank)) for rank in RANKS),
                {None: "–", True: "within", False: "over"}[row["meets"]],
            )
        )
        for row in rows
    ]
    columns = ("driven", "scenario", *(f"p{rank}, ms" for rank in RANKS), f"bound, {loads['p99_bound_ms']:g} ms")
    caption = (
        f"Latency from the intended start of a query to its answer, in brackets the {100 * confidence:g} % interval "
        "where there are enough of them; the bound is one of the server’s p99"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:])) if rows else None


def throughput(loads: Loads) -> Grid | None:
    """What was asked and answered, with errors, processor time and memory."""
    rows = loads["runs"]
    lines = [
        Line(
            (
                row["name"],
                SCENARIOS[row["scenario"]],
                count(row["rate_per_s"]),
                count(row["throughput_per_s"]),
                percent(row["error_rate"]),
                f"{row['cpu_cores']:.2f}",
                count(None if row["peak_bytes"] is None else row["peak_bytes"] / MEBI),
                "; ".join(marks(row)) or f"{count(row['queries'])} queries",
            )
        )
        for row in rows
    ]
    columns = (
        "driven", "scenario", "asked, 1/s", "answered, 1/s", "errors", "cores used", "peak, MiB", "rests on",
    )  # fmt: skip
    caption = (
        f"MLPerf’s LoadGen {loads['loadgen']}, {loads['seconds']:g} s each, from raw sample to answer by one worker; "
        "short: on less than MLPerf asks for; disturbed: by what else went on"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:7]), frozenset(columns[7:])) if rows else None


def _held_ms(row: LoadRate) -> str:
    """The worst p99 of the trials that confirmed the rate."""
    there = [trial["p99_ms"] for trial in row["trials"] if trial["rate_per_s"] == row["rate_per_s"] and trial["meets"]]
    return milliseconds(max(there, default=None))
