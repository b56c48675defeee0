"""Zones and lines in a picture: polygons and line segments, in shares of the picture or in pixels.

All arithmetic is on Python floats, so that it has the same bits everywhere. x goes to the right and y down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.rules import is_number, require

MOST_POINTS = 100
LARGEST_SHARE = 2
"""Numbers above 1 are pixels. Where none is above this, they are shares that lie outside the picture."""


@dataclass(frozen=True)
class Shape:
    """Points in shares of the picture, or in pixels."""

    where: str
    """The option of which it is the value, for messages."""
    points: tuple[tuple[float, float], ...]
    in_pixels: bool

    @classmethod
    def polygon(cls, where: str, value: Any) -> Shape:
        """Return the zone that a list of corners describes. Raises InputError unless it lies in the picture."""
        shape = cls._parse(where, value, 3, "list 3 corners or more, such as [[0, 0], [1, 0], [1, 1]]")
        require(area(shape.points), where, value, "the corners lie on one line; list the corners of an area")
        return shape

    @classmethod
    def line(cls, where: str, value: Any) -> Shape:
        """Return the line that a list of its two ends describes. Raises InputError unless it lies in the picture."""
        shape = cls._parse(where, value, 2, "list its two ends, such as [[0.5, 0], [0.5, 1]]", most=2)
        require(shape.points[0] != shape.points[1], where, value, "the two ends are the same; use different ones")
        return shape

    @classmethod
    def _parse(cls, where: str, value: Any, least: int, fix: str, most: int = MOST_POINTS) -> Shape:
        fits = isinstance(value, (list, tuple)) and least <= len(value) <= most and all(map(_is_point, value))
        require(fits, where, value, fix)
        points = tuple((float(x), float(y)) for x, y in value)
        largest, smallest = max(map(max, points)), min(map(min, points))
        inside = smallest >= 0 and not 1 < largest <= LARGEST_SHARE
        require(inside, where, value, "lies outside the picture; use shares from 0 to 1, or pixels")
        return cls(where, points, largest > 1)

    def check(self, size: tuple[int, int]) -> None:
        """Raise InputError for a point outside a picture of (width, height)."""
        for x, y in self.points if self.in_pixels else ():
            if x > size[0] or y > size[1]:
                raise InputError(
                    f"{self.where}: the point ({x:g}, {y:g}) lies outside the picture of {size[0]}x{size[1]} pixels; "
                    "use points inside, or shares from 0 to 1"
                )

    def units(self, point: tuple[float, float], size: tuple[int, int]) -> tuple[float, float]:
        """Return a point of a picture of (width, height), given in pixels, in the units of this shape."""
        if self.in_pixels:
            return point
        if not all(size):
            raise InputError(f"{self.where}: the answer is not about a picture; leave the zone or line out")
        return point[0] / size[0], point[1] / size[1]


def _is_point(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_number, value))


def area(polygon: Sequence[tuple[float, float]]) -> float:
    """Return twice the signed area of a polygon."""
    total = 0.0
    for (x1, y1), (x2, y2) in zip(polygon, (*polygon[1:], polygon[0])):
        total += x1 * y2 - x2 * y1
    return total


def side(line: Sequence[tuple[float, float]], point: tuple[float, float]) -> float:
    """Return on which side of an endless line a point lies.

    Negative is the side to which `directions(line)[0]` leads, positive the other one, and 0 is on the line.
    """
    (x1, y1), (x2, y2) = sorted(line, key=lambda end: end[::-1] if is_steep(line) else end)
    cross = (point[0] - x1) * (y2 - y1) - (point[1] - y1) * (x2 - x1)
    return cross if is_steep(line) else -cross


def is_steep(line: Sequence[tuple[float, float]]) -> bool:
    """Whether a line is closer to the vertical than to the horizontal, so that it is crossed to the left or right."""
    (x1, y1), (x2, y2) = line
    return abs(y2 - y1) >= abs(x2 - x1)


def directions(line: Sequence[tuple[float, float]]) -> tuple[str, str]:
    """Return the names of the two directions in which a line is crossed, the one to its negative side first."""
    return ("left", "right") if is_steep(line) else ("up", "down")


def crosses(line: Sequence[tuple[float, float]], start: tuple[float, float], end: tuple[float, float]) -> bool:
    """Whether the movement from one side of an endless line to the other passes between the line's two ends."""
    movement = (start, end)
    first, second = _turn(movement, line[0]), _turn(movement, line[1])
    return first * second <= 0


def _turn(line: Sequence[tuple[float, float]], point: tuple[float, float]) -> float:
    (x1, y1), (x2, y2) = line
    return (x2 - x1) * (point[1] - y1) - (y2 - y1) * (point[0] - x1)


def contains(polygon: Sequence[tuple[float, float]], point: tuple[float, float]) -> bool:
    """Whether a point lies in a polygon or on its edge, by the even-odd rule."""
    (x, y), inside = point, False
    for (x1, y1), (x2, y2) in zip(polygon, (*polygon[1:], polygon[0])):
        turn = _turn(((x1, y1), (x2, y2)), point)
        if turn == 0 and min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2):
            return True
        if (y1 > y) != (y2 > y) and (turn > 0) == (y2 > y1):
            inside = not inside
    return inside
