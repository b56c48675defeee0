"""Counting of tracked objects: across a line, in a zone, and how many are in a zone at present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from edgekit.device.live.rules.geometry import crosses, directions, side
from edgekit.device.live.rules.state import has_passed

if TYPE_CHECKING:
    from edgekit.device.live.rules.config import RuleConfig
    from edgekit.device.live.rules.observations import Observation, Reading
    from edgekit.device.live.types import Event


@dataclass(frozen=True)
class TrackedObjects:
    """The objects of a frame by the number of their track, and the numbers of all tracks that may still return."""

    by_track: dict[int, Reading]
    remembered: frozenset[int]


class LineCount:
    """Counts objects that cross a line, each once for each direction, or at each crossing.

    An object has crossed when its point lies on the other side than before and has passed between the ends of the line.
    A point exactly on the line is still on the side from which it came.
    """

    def __init__(self, config: RuleConfig) -> None:
        assert config.line is not None
        self._config, self._line, self._count = config, config.line, 0
        self._last: dict[int, tuple[float, float]] = {}
        self._counted: set[tuple[int, str]] = set()

    def update(self, seen: Observation, objects: TrackedObjects) -> list[Event]:
        """Return a `count` for each object that has crossed the line."""
        events = []
        for track, reading in objects.by_track.items():
            direction = self._crossed(track, self._line.units(reading.point(self._config.point), seen.answer.size))
            if direction and self._is_new(track, direction):
                self._count += 1
                events.append(_counted(seen, self._config, reading, track, self._count, direction=direction))
        self._last = {track: point for track, point in self._last.items() if track in objects.remembered}
        self._counted = {each for each in self._counted if each[0] in objects.remembered}
        return events

    def _crossed(self, track: int, point: tuple[float, float]) -> str:
        """Return the direction in which an object has crossed the line, or an empty text."""
        ends = self._line.points
        now, last = side(ends, point), self._last.get(track)
        if now == 0:
            return ""
        self._last[track] = point
        if last is None or (side(ends, last) > 0) == (now > 0) or not crosses(ends, last, point):
            return ""
        return directions(ends)[now > 0]

    def _is_new(self, track: int, direction: str) -> bool:
        if self._config.direction not in ("any", direction):
            return False
        if self._config.count == "tracks":
            if (track, direction) in self._counted:
                return False
            self._counted.add((track, direction))
        return True


class ZoneCount:
    """Counts the objects that have been in a zone, each once, when they have stayed for `on_after_s`."""

    def __init__(self, config: RuleConfig) -> None:
        self._config, self._count = config, 0
        self._since_s: dict[int, float] = {}
        self._counted: set[int] = set()

    def update(self, seen: Observation, objects: TrackedObjects) -> list[Event]:
        """Return a `count` for each object that is new in the zone."""
        events = []
        for track, reading in objects.by_track.items():
            if not seen.is_in_zone(self._config, reading):
                self._since_s.pop(track, None)
                continue
            since_s = self._since_s.setdefault(track, seen.now_s)
            if track not in self._counted and has_passed(seen.now_s, since_s, self._config.on_after_s):
                self._counted.add(track)
                self._count += 1
                events.append(_counted(seen, self._config, reading, track, self._count))
        self._since_s = {track: since_s for track, since_s in self._since_s.items() if track in objects.remembered}
        self._counted &= objects.remembered
        return events


class Occupancy:
    """The number of objects that are in a zone, whenever it has changed.

    It rises after it was higher for `on_after_s`, to the least that it was in that time, and falls likewise.
    """

    def __init__(self, config: RuleConfig) -> None:
        self._config, self._count = config, 0
        self._pending, self._since_s = 0, 0.0

    def update(self, seen: Observation, objects: TrackedObjects) -> list[Event]:
        """Return a `count` if the number has changed."""
        inside = [each for each in objects.by_track.values() if seen.is_in_zone(self._config, each)]
        number = len(inside)
        rises, was_pending = number > self._count, self._pending != self._count
        if number == self._count:
            self._pending = number
            return []
        if not was_pending or rises != (self._pending > self._count):
            self._pending, self._since_s = number, seen.now_s
        self._pending = min(number, self._pending) if rises else max(number, self._pending)
        after_s = self._config.on_after_s if rises else self._config.off_after_s
        if not has_passed(seen.now_s, self._since_s, after_s):
            return []
        self._count = self._pending
        label = self._config.label[0] if len(self._config.label) == 1 else ""
        score = max((each.score for each in inside), default=0.0)
        return [seen.event(self._config, "count", label, score, count=self._count)]


Count = Union[LineCount, ZoneCount, Occupancy]


def make_count(config: RuleConfig) -> Count:
    """Return the counter of a rule that counts."""
    if config.line is not None:
        return LineCount(config)
    return Occupancy(config) if config.count == "occupancy" else ZoneCount(config)


def _counted(seen: Observation, config: RuleConfig, reading: Reading, track: int, count: int, **details: Any) -> Event:
    details = {"count": count, "track": track, "box": list(reading.sides), **details}
    return seen.event(config, "count", reading.label, reading.score, **details)
