"""The table of files made by others: what the winner is beside each, whoever shows it."""

from __future__ import annotations

from edgekit.core.schema.variants import Rival
from edgekit.report.columns import Column
from edgekit.report.formatting import count, ends, faster, milliseconds, percent, points, times, with_ends

COLUMNS: tuple[Column[Rival], ...] = (
    Column("rival", lambda row: row["name"], numeric=False),
    Column("test", lambda row: percent(row["accuracy_test"])),
    Column("bytes", lambda row: count(row["bytes"])),
    Column("p50, ms", lambda row: milliseconds(row["p50_ms"])),
    Column("p95, ms", lambda row: milliseconds(row["p95_ms"])),
    Column("the winner", lambda row: row["winner"] or "–", numeric=False),
    Column("test, pp", lambda row: points(row["winner_gain_pp"])),
    Column("its bytes", lambda row: times(row["winner_bytes_share"])),
    Column("its speed", lambda row: with_ends(row, "winner_speedup")),
)


def sentence(row: Rival) -> str:
    """One line for a terminal; nothing where no variant won."""
    speed = ends(row, "winner_speedup")
    if speed is None:
        return ""
    return (
        f"Against {row['name']} ({percent(row['accuracy_test'])} on test, {count(row['bytes'])} bytes, "
        f"p50 {milliseconds(row['p50_ms'])} ms): {row['winner']} is {faster(*speed)}, "
        f"{points(row['winner_gain_pp'])} pp on test, {times(row['winner_bytes_share'])} its bytes."
    )
