"""The values that pass between the parts of `edgerun live`: frames, answers and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Frame:
    """A picture, a window of sound or a window of rows, as it came from a source."""

    source: str
    """The name of the source."""
    number: int
    """Number in the order of arrival, from 0. Frames that were dropped count, so that gaps show them."""
    arrived_s: float
    """`time.monotonic()` at which its last byte arrived."""
    time_s: float
    """`time.time()` of the same moment."""
    data: np.ndarray
    """A picture, uint8 (height, width, channels) in RGB, or a raw sample of the bundle."""


@dataclass(frozen=True)
class Answer:
    """What a model answers to a frame."""

    source: str
    number: int
    time_s: float
    size: tuple[int, int]
    """Width and height of the picture in pixels, to which boxes refer; (0, 0) without a picture."""
    content: dict[str, Any]
    """The answer as `edgerun predict --json` prints it (`to_dict` of the prediction, smoothed if the bundle says so),
    with boxes in pixels of the picture, but without masks."""
    model: str = ""
    """The name of the model in a recording of several, else empty."""


@dataclass(frozen=True)
class Event:
    """Something that a rule has noticed. Replaying the same answers gives the same events, including their ids."""

    id: str
    """Unique among all events of a device, and equal whenever the same event is sent again."""
    rule: str
    source: str
    kind: str
    """`on` and `off` for the begin and end of a condition, `count` for a change of a counter."""
    time_s: float
    """The time of the frame that caused it, as `time.time()`."""
    label: str
    score: float
    frame: int
    """Number of the frame that caused it."""
    details: dict[str, Any] = field(default_factory=dict)
    """More for some rules: `zone`, `line`, `direction`, `count`, `track`, `box`, `seconds`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON object; `details` are part of it."""
        return {
            "id": self.id,
            "rule": self.rule,
            "source": self.source,
            "kind": self.kind,
            "time": self.time_s,
            "label": self.label,
            "score": self.score,
            "frame": self.frame,
            **self.details,
        }
