"""What an answer says: labels with scores or values, and boxes in the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.device.live.rules.config import RuleConfig
from edgekit.device.live.rules.geometry import contains
from edgekit.device.live.types import Event

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

    def point(self, kind: str) -> tuple[float, float]:
        """Return the point of the box that stands for the object: `bottom` or `center`."""
        assert self.box is not None
        left, top, right, bottom = self.box
        return (left + right) / 2, top + (bottom - top) * BOX_POINTS[kind]


@dataclass(frozen=True)
class Observation:
    """An answer and what it says, at a time that never goes back."""

    answer: Answer
    readings: tuple[Reading, ...]
    now_s: float

    def matching(self, config: RuleConfig) -> list[Reading]:
        """Return the readings with the rule's labels and in its zone, best first."""
        readings = [each for each in self.readings if not config.label or each.label in config.label]
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

    A classification has the labels in `top`; the others count as absent.
    """
    content = {**content, **content.get("smoothed", {})}
    if "boxes" in content:
        return tuple(
            Reading(each["label"], float(each["probability"]), tuple(map(float, each["box"])))
            for each in content["boxes"]
        )
    if "top" in content:
        return tuple(Reading(label, float(score)) for label, score in content["top"])
    for name in ("probabilities", "values", "shares"):
        if name in content:
            return tuple(Reading(label, float(score)) for label, score in content[name].items())
    return (Reading("", float(content["score"])),) if "is_anomaly" in content else ()
