"""What an answer says: labels with scores or values, and boxes in the picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.device.live.rules.config import RuleConfig
from edgekit.device.live.rules.geometry import contains
from edgekit.device.live.types import Event
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.types import Answer

BOX_POINTS = {"bottom": 1.0, "center": 0.5}
"""How far down in a box its point lies, as a share of its height."""


@dataclass(frozen=True)
class Reading:
    """A label with its score or value, and the sides of its box (left, top, right, bottom) in pixels if it has one."""

    label: str
    score: float
    box: tuple[float, ...] | None = None
    is_anomaly: bool | None = None
    """The bundle's own decision about an anomaly, which has no label here."""

    @property
    def sides(self) -> tuple[float, ...]:
        """The box. Raises InputError if the answer has none."""
        if self.box is None:
            raise InputError(f"the answer about {self.label!r} has no box; use the rules of the bundle that answered")
        return self.box

    def point(self, kind: str) -> tuple[float, float]:
        """Return the point of the box that stands for the object: `bottom` or `center`."""
        left, top, right, bottom = self.sides
        return (left + right) / 2, top + (bottom - top) * BOX_POINTS[kind]


@dataclass(frozen=True)
class Observation:
    """An answer and what it says, at a time that never goes back."""

    answer: Answer
    readings: tuple[Reading, ...]
    now_s: float

    def matching(self, config: RuleConfig) -> list[Reading]:
        """Return the readings with the rule's labels and in its zone, best first."""
        readings = [each for each in self.readings if not config.label or each.label in (*config.label, "")]
        readings = [each for each in readings if self.is_in_zone(config, each)]
        return sorted(readings, key=lambda each: -each.score)

    def is_in_zone(self, config: RuleConfig, reading: Reading) -> bool:
        """Whether the point of an object lies in the rule's zone, if it has one."""
        if config.zone is None:
            return True
        return contains(config.zone.points, config.zone.units(reading.point(config.point), self.answer.size))

    def event(self, config: RuleConfig, kind: str, label: str, score: float, **details: Any) -> Event:
        """Return an event of this frame. Its id tells it apart by rule, kind and track from others of the frame."""
        answer = self.answer
        track = f"{details.get('track', '')}{details.get('direction', '')}"
        return Event(
            id=f"{round(answer.time_s * 1000)}.{answer.number}.{config.name}.{kind}{track}.{answer.source}",
            rule=config.name,
            source=answer.source,
            kind=kind,
            time_s=answer.time_s,
            label=label,
            score=score,
            frame=answer.number,
            details=details,
        )


def readings(content: Mapping[str, Any]) -> tuple[Reading, ...]:
    """Return what an answer says, from the dict that its `to_dict` returns. A smoothed answer is preferred.

    A classification has the labels in `top`; the others count as absent. Raises InputError for anything else.
    """
    try:
        return tuple(_readings({**content, **content.get("smoothed", {})}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"got {str(content)[:200]!r}, which is not an answer of a model; record it again") from None


def _readings(content: Mapping[str, Any]) -> Iterator[Reading]:
    if "boxes" in content:
        for each in content["boxes"]:
            left, top, right, bottom = map(float, each["box"])
            yield Reading(each["label"], float(each["probability"]), (left, top, right, bottom))
        return
    if "is_anomaly" in content:
        yield Reading("", float(content["score"]), is_anomaly=bool(content["is_anomaly"]))
        return
    named = [content[name].items() for name in ("probabilities", "values", "shares") if name in content]
    for label, score in content["top"] if not named else named[0]:
        yield Reading(label, float(score))
