"""How the winners and the baseline fare under load: every run of LoadGen, and the highest rate that was held."""

from __future__ import annotations

from edgekit.page.rows import Grid, Line, Row
from edgekit.tables import count, milliseconds, percent

SCENARIOS = {"single_stream": "single stream", "server": "server, Poisson", "offline": "offline"}
RANKS = (50, 90, 95, 99)
MEBI = 2**20


def told(result: Row, confidence: float) -> Row | None:
    """`grids` and `failed`, a line each; None where nothing was driven. `confidence` is that of the intervals."""
    loads = result["loads"]
    if not loads["runs"] and not loads["failed"]:
        return None
    grids = [rates(loads), runs(loads, confidence)]
    failed = [f"{row['name']} was not driven to the end: {row['reason']}" for row in loads["failed"]]
    return {"grids": [each for each in grids if each is not None], "failed": failed}


def rates(loads: Row) -> Grid | None:
    """The highest rate of Poisson arrivals whose p99 stays within the bound."""
    rows = loads["rates"]
    lines = [
        Line(
            (row["name"], count(row["rate_per_s"]), _held_ms(row), str(len(row["trials"])), row["why"]),
            "out" if row["rate_per_s"] is None else "",
        )
        for row in rows
    ]
    columns = ("driven", "highest rate, 1/s", "p99 there, ms", "trials", "how the search ended")
    caption = f"The highest rate of Poisson arrivals whose p99 stays within {loads['p99_bound_ms']:g} ms"
    return Grid(caption, columns, lines, frozenset(columns[1:4]), frozenset(columns[4:])) if rows else None


def runs(loads: Row, confidence: float) -> Grid | None:
    """Each of the driven in each scenario."""
    rows = loads["runs"]
    columns = (
        "driven", "scenario", "asked, 1/s", "answered, 1/s", *(f"p{rank}, ms" for rank in RANKS),
        "p99 within the bound", "errors", "cores used", "peak, MiB", "rests on",
    )  # fmt: skip
    lines = [
        Line(
            (
                row["name"],
                SCENARIOS[row["scenario"]],
                count(row["rate_per_s"]),
                count(row["throughput_per_s"]),
                *_latencies(row),
                {None: "–", True: "yes", False: "no"}[row["meets"]],
                percent(row["error_rate"]),
                f"{row['cpu_cores']:.2f}",
                count(None if row["peak_bytes"] is None else row["peak_bytes"] / MEBI),
                f"short: {row['why_short']}" if row["short"] else f"{count(row['queries'])} queries",
            )
        )
        for row in rows
    ]
    caption = (
        f"MLPerf’s LoadGen {loads['loadgen']}, {loads['seconds']:g} s each, from raw sample to answer by one worker; a "
        f"latency runs from the intended start, in brackets its {100 * confidence:g} % interval"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:12]), frozenset(columns[12:])) if rows else None


def _latencies(row: Row) -> list[str]:
    """With their intervals; none in offline, where they only say how long the whole took."""
    if row["scenario"] == "offline":
        return ["–"] * len(RANKS)
    return [_with_ends(*(row[f"p{rank}_{end}"] for end in ("ms", "low_ms", "high_ms"))) for rank in RANKS]


def _with_ends(value_ms: float, low_ms: float | None, high_ms: float | None) -> str:
    interval = "" if low_ms is None or high_ms is None else f" ({milliseconds(low_ms)}–{milliseconds(high_ms)})"
    return milliseconds(value_ms) + interval


def _held_ms(row: Row) -> str:
    """The worst p99 of the trials that confirmed the rate."""
    there = [trial["p99_ms"] for trial in row["trials"] if trial["rate_per_s"] == row["rate_per_s"] and trial["meets"]]
    return milliseconds(max(there, default=None))
