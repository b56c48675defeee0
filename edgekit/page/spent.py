"""Where the time goes, before and after: the profile's parts of one call, and the same rounds for before and winner.

What `01_profile` measures beyond this is one more function that gives a Grid, named in `told`.
"""

from __future__ import annotations

from edgekit.page.rows import Grid, Line, Row, grid
from edgekit.tables import milliseconds, times

IN_ORDER = ("load", "warm-up", "queue", "preprocess", "execute", "postprocess", "serialise")
"""Of a call; a record does not keep it."""


def told(profile: Row, result: Row) -> Row:
    """`text` from the diagnosis, and `grids`, the tables that the profile's metrics allow."""
    diagnosis = profile.get("diagnosis", {})
    grids = [parts(profile), causes(profile), steps(profile), executed(result)]
    return {
        "text": diagnosis.get("text", ""),
        "grids": [each for each in grids if each is not None],
    }


def parts(profile: Row) -> Grid | None:
    """One call by PyTorch eager, part by part as the profile names them."""
    latency: Row = profile.get("latency", {})
    if "total" not in latency:
        return None
    names = [*sorted(set(latency) - {"total"}, key=_place), "total"]
    rows = [
        (
            name if name != "total" else "the whole call",
            *(milliseconds(latency[name].get(key)) for key in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")),
            f"{latency[name]['share']:.1%}" if "share" in latency[name] else "–",
        )
        for name in names
    ]
    columns = ("part", "mean, ms", "p50, ms", "p95, ms", "p99, ms", "share of the mean")
    return grid("Before: one call by PyTorch eager, from raw sample to class", columns, rows, "|".join(columns[1:]))


def causes(profile: Row) -> Grid | None:
    """What the diagnosis makes of them, with the least time that this machine's ceilings allow."""
    diagnosis: Row = profile.get("diagnosis", {})
    shares: Row = diagnosis.get("shares", {})
    floors_ms: Row = diagnosis.get("floors_ms", {})
    rows = [
        (name, f"{share:.1%}", milliseconds(floors_ms.get(name)))
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    ]
    columns = ("cause", "share of a call", "at the machine’s ceilings, ms")
    return grid("Before: what it is spent on, an estimate", columns, rows, "|".join(columns[1:])) if rows else None


def steps(profile: Row) -> Grid | None:
    """What the diagnosis advised, ranked by what it predicted."""
    advised: list[Row] = profile.get("diagnosis", {}).get("steps", [])
    rows = [(step["title"], step["where"], times(step["speedup"]), step["why"]) for step in advised]
    columns = ("next step", "where", "predicted", "why")
    return grid("What the diagnosis advised", columns, rows, "predicted", "next step|why") if rows else None


def executed(result: Row) -> Grid | None:
    """Execute alone, before and after, measured in the same rounds; None where nothing won."""
    rows = {row["name"]: row for row in result["variants"]}
    if not result["verdict"]["met"]:
        return None
    before, after = result["variants"][0], rows[result["verdict"]["winner"]]
    columns = ("execute alone", "before", "after", "before over after")
    lines = [
        Line((what, milliseconds(before[key]), milliseconds(after[key]), times(before[key] / after[key])))
        for what, key in (
            ("mean, ms", "mean_ms"),
            ("p50, ms", "p50_ms"),
            ("p95, ms", "p95_ms"),
            ("p99, ms", "p99_ms"),
        )
    ]
    caption = f"After: {after['name']} against {before['name']}, same rounds, without preprocess and postprocess"
    return Grid(caption, columns, lines, frozenset(columns[1:]))


def _place(part: str) -> tuple[int, str]:
    return IN_ORDER.index(part) if part in IN_ORDER else len(IN_ORDER), part
