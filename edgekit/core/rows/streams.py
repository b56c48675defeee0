"""Answers over time to the validation windows as a stream, by smoothing: rows of result.json."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Smoothed(TypedDict):
    """One way to smooth, evaluated; what rests on events is null where no class is the background."""

    smoothing: dict[str, Any] | None
    accuracy: float
    detected: int | None
    delay_windows: float | None
    false_alarms: int | None
    per_hour: float | None
    per_hour_at_most: float | None
    alarmed_share: float | None
    kept: bool
    reason: str


class Streamed(TypedDict):
    """The validation windows of one bundle, played in the order of time."""

    split: Literal["validation"]
    windows: int
    pieces: int
    hop: int
    hop_s: float | None
    background: str | None
    events: int | None
    hours: float | None
    windows_outside: int | None
    tolerance_windows: int
    repeat_windows: int
    confidence: float
    rule: Literal["nothing to choose", "as declared", "fewest false alarms", "highest accuracy"]
    candidates: list[Smoothed]
