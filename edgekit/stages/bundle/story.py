"""What the README inside a bundle says of its answers to a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.core.schema.streams import Streamed


def told_of_stream(stream: Streamed | None) -> list[str]:
    """A line on smoothing, and one on detections and false alarms; none where the stream was not evaluated."""
    if stream is None:
        return []
    row = next(row for row in stream["candidates"] if row["kept"])
    lines = [f"Answers to a stream: {in_words(row['smoothing'])}, one window every {stream['hop']}"]
    if row["detected"] is None:
        return lines
    found = f"{row['detected']} of {stream['events']} events detected, {row['false_alarms']} false alarms"
    if row["per_hour_at_most"] is not None:
        found += (
            f" in {stream['hours']:.3g} h outside of them, at most {row['per_hour_at_most']:.3g} an hour "
            f"at {100 * stream['confidence']:g} % confidence"
        )
    return [*lines, f"On validation: {found}"]


def in_words(way: Mapping[str, Any] | None) -> str:
    """`majority of 5 windows`, `hysteresis 0.8 to 0.5`, `no smoothing`."""
    if way is None:
        return "no smoothing"
    if "windows" in way:
        return f"{way['method']} of {way['windows']} windows"
    return f"{way['method']}, enter {way['enter']:g}, leave {way['leave']:g}"
