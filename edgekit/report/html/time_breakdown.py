"""Where the time goes, before and after: the profile's parts of a session and of one call, what was predicted of the
variants, and the same rounds for before and winner.

What `01_profile` measures beyond this is one more function that gives a Grid, named in `build_section`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.core.schema.profile import PredictedSpeedup
from edgekit.core.schema.result import Result
from edgekit.report.formatting import count, milliseconds, span, times, with_ends
from edgekit.report.html.rows import Grid, Line, grid
from edgekit.stages.profile.session import COLD, PARTS

IN_ORDER = (*COLD, *PARTS)
"""Of a session, and from `queue` on of a call; a record does not keep it."""


def build_section(profile: Mapping[str, Any], result: Result, predicted: Sequence[PredictedSpeedup]) -> dict[str, Any]:
    """`text` from the diagnosis, what `disturbed` it, and `grids`, the tables that the profile's metrics allow.

    `predicted` are the predictions beside what was achieved, none where profile measured no runtime.
    """
    diagnosis = profile.get("diagnosis", {})
    grids = [
        session(profile),
        parts(profile),
        causes(profile),
        steps(profile),
        achieved(predicted, result),
        executed(result),
    ]
    return {
        "text": diagnosis.get("text", ""),
        "disturbed": "; ".join(profile.get("conditions", {}).get("disturbed", [])),
        "grids": [each for each in grids if each is not None],
    }


def session(profile: Mapping[str, Any]) -> Grid | None:
    """One process from its start to its last answer, part by part, beside the same timed from outside."""
    found = profile.get("session", {})
    if not found:
        return None
    whole_ms, parts_ms = found["whole_ms"], found["parts_ms"]
    cold_ms = sum(parts_ms[name] for name in COLD)
    rows = [
        (f"{name}, {count(found['calls'])} calls" if name in PARTS else name, parts_ms[name])
        for name in sorted(parts_ms, key=_place)
    ]
    rows += [("all parts", sum(parts_ms.values())), ("of which before the first answer", cold_ms)]
    cells = [(name, milliseconds(value_ms), f"{value_ms / whole_ms:.1%}") for name, value_ms in rows]
    cells.append(("measured from outside", milliseconds(whole_ms), ""))
    if stamped := found.get("stamped"):
        interval = span(stamped["low"], stamped["high"])
        cells.append(("a call with stamps, of one without", times(stamped["ratio"]), interval))
    columns = ("part of the session", "ms", "share")
    caption = f"Before: one process from its start to its last of {count(found['calls'])} answers, by the baseline"
    return grid(caption, columns, cells, "ms|share")


def parts(profile: Mapping[str, Any]) -> Grid | None:
    """One call of the baseline, part by part as the profile names them."""
    latency = profile.get("latency", {})
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
    return grid("Before: one call of the baseline, from raw sample to class", columns, rows, "|".join(columns[1:]))


def causes(profile: Mapping[str, Any]) -> Grid | None:
    """What the diagnosis makes of them, with the least time that this machine's ceilings allow."""
    diagnosis = profile.get("diagnosis", {})
    shares = diagnosis.get("shares", {})
    floors_ms = diagnosis.get("floors_ms", {})
    rows = [
        (name, f"{share:.1%}", milliseconds(floors_ms.get(name)))
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    ]
    columns = ("cause", "share of a call", "at the machine’s ceilings, ms")
    return grid("Before: what it is spent on, an estimate", columns, rows, "|".join(columns[1:])) if rows else None


def steps(profile: Mapping[str, Any]) -> Grid | None:
    """What the diagnosis advised: against the bound first, then by what it predicted."""
    advised = profile.get("diagnosis", {}).get("steps", [])
    rows = [(step["title"], step["where"], times(step["speedup"]), step["why"]) for step in advised]
    columns = ("next step", "where", "predicted", "why")
    return grid("What the diagnosis advised", columns, rows, "predicted", "next step|why") if rows else None


def achieved(predicted: Sequence[PredictedSpeedup], result: Result) -> Grid | None:
    """What was predicted of each variant before a step was taken, and what it reached; None where nothing was."""
    ships = set(result["winners"].values())
    lines = [
        Line(
            (row["name"], times(row["predicted"]), with_ends(row, "achieved"), times(row["share"])),
            "ships" if row["name"] in ships else "",
        )
        for row in sorted(predicted, key=lambda row: -row["achieved"])
    ]
    columns = ("variant", "predicted", "achieved", "achieved over predicted")
    caption = "What the profile predicted against what was achieved: speed-up over the baseline, execute alone"
    return Grid(caption, columns, lines, frozenset(columns[1:])) if lines else None


def executed(result: Result) -> Grid | None:
    """Execute alone, before and after, measured in the same rounds; None where nothing won."""
    rows = {row["name"]: row for row in result["variants"]}
    if not result["verdict"]["met"]:
        return None
    before, after = result["variants"][0], rows[result["verdict"]["winner"]]
    columns = ("execute alone", "before", "after", "before over after")
    lines = [
        Line((what, milliseconds(first_ms), milliseconds(then_ms), times(first_ms / then_ms)))
        for what, first_ms, then_ms in (
            ("mean, ms", before["mean_ms"], after["mean_ms"]),
            ("p50, ms", before["p50_ms"], after["p50_ms"]),
            ("p95, ms", before["p95_ms"], after["p95_ms"]),
            ("p99, ms", before["p99_ms"], after["p99_ms"]),
        )
    ]
    caption = f"After: {after['name']} against {before['name']}, same rounds, without preprocess and postprocess"
    return Grid(caption, columns, lines, frozenset(columns[1:]))


def _place(part: str) -> tuple[int, str]:
    return IN_ORDER.index(part) if part in IN_ORDER else len(IN_ORDER), part
