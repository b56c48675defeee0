"""How the winners fare under load, beside the baseline."""

from __future__ import annotations

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.loads import LoadRate, LoadRun, Loads, ends_ms
from edgekit.report.formatting import Table, count, milliseconds_with_ends, percent

MEBI = 2**20


def loads(artifact: Artifact) -> Table:
    """Every run of LoadGen, and the highest rate that was confirmed; from the benchmark."""
    found = artifact.metrics["loads"]
    best = {row["name"]: row for row in found["rates"]}
    rows = [_run(row, best.get(row["name"])) for row in found["runs"]]
    rows += [(row["name"], *[""] * 9, f"failed: {row['reason']}") for row in found["failed"]]
    heads = ("driven", "scenario", "asked, 1/s", "answered, 1/s", "p50, ms", "p95, ms", "p99, ms", "errors", "cores")
    return Table((*heads, "peak, MiB", ""), rows, _title(artifact) if rows else nothing_driven(found))


def nothing_driven(found: Loads) -> str:
    """That no load was driven, and why where one was asked for."""
    return f"no load was driven: {reason}" if (reason := found.get("skipped")) else "no load was driven"


def held(row: LoadRate) -> str:
    """What a search for the highest rate came to, and why it is not to be relied on: 1,234/s (short: 1 of 600 s)."""
    rate, but = row["rate_per_s"], "; ".join(marks(row))
    rate_text = f"none that was confirmed, {row['why']}" if rate is None else f"{count(rate)}/s"
    return f"{rate_text} ({but})" if but else rate_text


def _run(row: LoadRun, best: LoadRate | None) -> tuple[str, ...]:
    offline = row["scenario"] == "offline"  # its latencies only say how long the whole took
    latencies = ("",) * 3 if offline else tuple(milliseconds_with_ends(*ends_ms(row, rank)) for rank in (50, 95, 99))
    return (
        row["name"],
        row["scenario"],
        "" if row["rate_per_s"] is None else count(row["rate_per_s"]),
        count(row["throughput_per_s"]),
        *latencies,
        percent(row["error_rate"]),
        f"{row['cpu_cores']:.2f}",
        "–" if row["peak_bytes"] is None else count(row["peak_bytes"] / MEBI),
        "; ".join(_notes(row, best)),
    )


def _notes(row: LoadRun, best: LoadRate | None) -> list[str]:
    notes = []
    if row["scenario"] == "server":
        notes.append("within the bound" if row["meets"] else "over the bound")
        if best:
            notes.append(f"highest rate: {held(best)}")
    return notes + marks(row)


def marks(row: LoadRun | LoadRate) -> list[str]:
    """Why a run or a rate is not to be relied on: what it lacks, what disturbed it."""
    short = [f"short: {row['why_short']}"] if row["short"] else []
    return short + ([f"disturbed: {'; '.join(row['disturbed'])}"] if row["disturbed"] else [])


def _title(artifact: Artifact) -> str:
    found = artifact.metrics["loads"]
    return (
        f"Raw sample to answer, {found['seconds']:g} s each, one worker; p99 bound {found['p99_bound_ms']:g} ms; "
        f"in brackets {100 * artifact.config['confidence']:g} % intervals"
    )
