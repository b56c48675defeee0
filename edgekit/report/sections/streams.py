"""Show the streaming accuracy: the detections and false alarms of each smoothing method."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.result import Result
from edgekit.core.schema.streams import SmoothingResult, StreamResult
from edgekit.report.formatting import capitalised, count, percent
from edgekit.report.tables import Grid, Table, grid
from edgekit.stages.bundle.streams import describe_smoothing

COLUMNS = ("target", "smoothing", "accuracy", "detected", "delay, windows", "false alarms", "per hour", "at most", "")
NOT_IN_TIME = "validation has no order in time, so answers to a stream cannot be evaluated"


def table(artifact: Artifact) -> Table:
    """Show every smoothing candidate for each bundle, or why none could be evaluated."""
    streams: Mapping[str, StreamResult] = artifact.metrics["streams"]
    return Table(COLUMNS, rows(streams), caption(streams) if streams else NOT_IN_TIME)


def rows(streams: Mapping[str, StreamResult]) -> list[tuple[str, ...]]:
    """Return a row for each candidate, with the selected one marked."""
    return [
        (target if place == 0 else "", *_cells(row, stream))
        for target, stream in streams.items()
        for place, row in enumerate(stream["candidates"])
    ]


def caption(streams: Mapping[str, StreamResult]) -> str:
    """Say on which windows, over which time and by which rule the candidates were evaluated."""
    stream = next(iter(streams.values()))
    text = f"{count(stream['windows'])} validation windows in the order of time, in {count(stream['pieces'])} pieces"
    if stream["background"] is None:
        return f"{text}; no class is the background, so there are no events; selected by: {stream['rule']}"
    if stream["hours"] is None:
        outside = f"{count(stream['windows_outside'] or 0)} windows outside of events; no rate is known"
    else:
        outside = f"{stream['hours']:.3g} h outside of events; at most: at {100 * stream['confidence']:g} % confidence"
    return f"{text}; {outside}; selected by: {stream['rule']}"


def _cells(row: SmoothingResult, stream: StreamResult) -> tuple[str, ...]:
    detected = "–" if row["detected"] is None else f"{row['detected']} of {stream['events']}"
    return (
        describe_smoothing(row["smoothing"]),
        percent(row["accuracy"]),
        detected,
        _number(row["delay_windows"], ".1f"),
        _number(row["false_alarms"], ",d"),
        _number(row["per_hour"], ".3g"),
        _number(row["per_hour_at_most"], ".3g"),
        "selected" if row["kept"] else row["reason"],
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def page_grid(result: Result) -> Grid | None:
    """Show every smoothing candidate for each bundle. Returns None if validation has no order in time."""
    streams = result["streams"]
    if not streams:
        return None
    text = caption(streams)
    numeric = "|".join(COLUMNS[2:-1])
    return grid(capitalised(text), COLUMNS, rows(streams), numeric, "smoothing|")
