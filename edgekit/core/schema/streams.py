"""Answers over time to the validation windows as a stream, by smoothing: rows of result.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from edgekit.core.schema.record import Count, Record, Share


class SmoothingResult(Record):
    """One way to smooth answers to a stream; what rests on events is null where no class is the background."""

    smoothing: Annotated[
        dict[str, Any] | None, Field(description="method and options, as in a manifest; null: no smoothing")
    ]
    accuracy: Annotated[Share, Field(description="share of windows of which the smoothed answer is right")]
    detected: Annotated[Count | None, Field(description="events whose label is said within them or their tolerance")]
    delay_windows: Annotated[
        float | None, Field(ge=0, description="mean windows from an event's first to its detection")
    ]
    false_alarms: Annotated[
        Count | None, Field(description="runs of windows in which a label is said outside of its events")
    ]
    per_hour: Annotated[
        float | None, Field(ge=0, description="false alarms an hour outside of events; null: no rate is known")
    ]
    per_hour_at_most: Annotated[float | None, Field(ge=0, description="upper end of its one-sided Poisson interval")]
    alarmed_share: Annotated[
        Share | None, Field(description="share of the windows outside of events in which any label is said")
    ]
    kept: Annotated[bool, Field(description="true for what the bundle declares")]
    reason: Annotated[str, Field(description="why it was not kept; empty where nothing was to be chosen")]


class StreamResult(Record):
    """The validation windows of one bundle, played in the order of time."""

    split: Annotated[Literal["validation"], Field(description="the split whose windows these are")]
    windows: Annotated[int, Field(gt=0, description="windows of the split")]
    pieces: Annotated[int, Field(gt=0, description="pieces of recordings, which lie one behind the other")]
    hop: Annotated[int, Field(gt=0, description="from the start of a window to that of the next, samples or rows")]
    hop_s: Annotated[float | None, Field(gt=0, description="the same in seconds; null where the rate is not known")]
    background: Annotated[str | None, Field(description="the class of what is no event; null where there is none")]
    events: Annotated[Count | None, Field(description="runs of windows with one other label")]
    hours: Annotated[float | None, Field(ge=0, description="time outside of events and their tolerance, hours")]
    windows_outside: Annotated[Count | None, Field(description="the same in windows")]
    tolerance_windows: Annotated[Count, Field(description="windows behind an event in which it may still be detected")]
    repeat_windows: Annotated[
        int, Field(gt=0, description="windows after which a false alarm that goes on counts again")
    ]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="of the bound of the false alarms an hour")]
    rule: Annotated[
        Literal["nothing to choose", "as declared", "fewest false alarms", "highest accuracy"],
        Field(description="why the smoothing is what it is"),
    ]
    candidates: Annotated[
        list[SmoothingResult], Field(min_length=1, description="no smoothing first; of equals the first is kept")
    ]
