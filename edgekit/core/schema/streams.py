"""Accuracy on validation windows played as a stream, for each smoothing method: records of result.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from edgekit.core.schema.record import Count, Record, Share


class SmoothingResult(Record):
    """One smoothing method. Figures that rest on events are null if no class is the background."""

    smoothing: Annotated[
        dict[str, Any] | None, Field(description="method and options, as in a manifest; null: no smoothing")
    ]
    accuracy: Annotated[Share, Field(description="share of windows whose smoothed answer is correct")]
    detected: Annotated[
        Count | None,
        Field(description="events whose label is predicted during the event or within the tolerance after it"),
    ]
    delay_windows: Annotated[
        float | None,
        Field(ge=0, description="windows from the first window of an event to its detection, as the mean"),
    ]
    false_alarms: Annotated[
        Count | None, Field(description="runs of windows in which a label is predicted outside its events")
    ]
    per_hour: Annotated[
        float | None,
        Field(ge=0, description="false alarms per hour outside events; null: the sample rate is not known"),
    ]
    per_hour_at_most: Annotated[
        float | None, Field(ge=0, description="upper bound of that rate's one-sided Poisson interval")
    ]
    alarmed_share: Annotated[
        Share | None, Field(description="share of the windows outside events in which any label is predicted")
    ]
    kept: Annotated[bool, Field(description="true for the smoothing that the bundle declares")]
    reason: Annotated[str, Field(description="why it was rejected; empty if there was nothing to choose")]


class StreamResult(Record):
    """The validation windows of one bundle, played in temporal order."""

    split: Annotated[Literal["validation"], Field(description="the split whose windows these are")]
    windows: Annotated[int, Field(gt=0, description="windows of the split")]
    pieces: Annotated[int, Field(gt=0, description="pieces of recordings that the windows come from")]
    hop: Annotated[int, Field(gt=0, description="from the start of a window to that of the next, samples or rows")]
    hop_s: Annotated[float | None, Field(gt=0, description="the same in seconds; null if the rate is not known")]
    background: Annotated[str | None, Field(description="the class that is not an event; null if there is none")]
    events: Annotated[
        Count | None, Field(description="events: runs of windows with one label other than the background")
    ]
    hours: Annotated[float | None, Field(ge=0, description="time outside events and their tolerance, hours")]
    windows_outside: Annotated[Count | None, Field(description="the same time as a number of windows")]
    tolerance_windows: Annotated[Count, Field(description="windows after an event in which it can still be detected")]
    repeat_windows: Annotated[int, Field(gt=0, description="windows after which a continuing false alarm counts again")]
    confidence: Annotated[float, Field(gt=0.5, lt=1, description="confidence of the bound on false alarms per hour")]
    rule: Annotated[
        Literal["nothing to choose", "as declared", "fewest false alarms", "highest accuracy"],
        Field(description="why this smoothing was selected"),
    ]
    candidates: Annotated[
        list[SmoothingResult],
        Field(
            min_length=1,
            description="every smoothing that was tried, beginning with none; of equally good ones the first is kept",
        ),
    ]
