"""Boxes around the things that were found, each with its label and probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.drawing import font, style

if TYPE_CHECKING:
    from edgekit.runner.drawing.style import Style
    from edgekit.runner.postprocess.detection import Detection, Found

PIXELS_A_SCALE = 320
"""Of a picture's shorter side: twice as many, and lines and letters are twice as large."""
Area = tuple[int, int, int, int]
"""Left, top, right and bottom in whole pixels."""


def draw(picture: np.ndarray, answer: Detection, labels: Sequence[str]) -> np.ndarray:
    """See the package; the surest box lies on top, and labels stand where none covers another, if there is room."""
    canvas = np.array(picture, order="C")
    height, width = canvas.shape[:2]
    scale = max(1, round(min(height, width) / PIXELS_A_SCALE))
    numbers = {label: number for number, label in enumerate(labels)}
    shown = [(found, _area(found, width, height), style.of(numbers[found.label])) for found in answer.boxes]
    for _, area, look in reversed(shown):
        _outline(canvas, area, look, scale)
    taken: list[Area] = []
    placed = []
    for found, area, look in shown:
        letters = (width - 2 * scale) // (font.STEP * scale)
        text = font.caption(font.plain(found.label, f"#{numbers[found.label]}"), found.probability, letters)
        if not text:
            continue
        size = len(text) * font.STEP * scale + scale, (font.HEIGHT + 2) * scale
        where = _place(area, size, (width, height), taken)
        taken.append(where)
        placed.append((where, text, look))
    for where, text, look in reversed(placed):
        _label(canvas, where, text, look, scale)
    return canvas


def _area(found: Found, width: int, height: int) -> Area:
    left, top, right, bottom = (round(side) for side in found.box)
    left, top = min(max(left, 0), width - 1), min(max(top, 0), height - 1)
    return left, top, min(max(right, left + 1), width), min(max(bottom, top + 1), height)


def _outline(canvas: np.ndarray, area: Area, look: Style, scale: int) -> None:
    """A line in the class's pattern, between thin lines that stand out against it."""
    left, top, right, bottom = area
    thick = 2 * scale
    for grown, colour in ((scale, look.against), (0, look.colour)):
        a, b, c, d = max(0, left - grown), max(0, top - grown), right + grown, bottom + grown
        inner = thick + grown
        across, down = _on(c - a, look, thick, grown), _on(d - b, look, thick, grown)
        for rows in (slice(b, min(top + inner, d)), slice(max(b, bottom - inner), d)):
            _ink(canvas[rows, a:c], across, 1, colour)
        for columns in (slice(a, min(left + inner, c)), slice(max(a, right - inner), c)):
            _ink(canvas[b:d, columns], down, 0, colour)


def _on(length: int, look: Style, thick: int, grown: int) -> np.ndarray:
    """Which pixels along a line are drawn; the thin lines around it are whole."""
    if grown:
        return np.ones(length, bool)
    period = np.concatenate([np.full(part * thick, place % 2 == 0) for place, part in enumerate(look.pattern)])
    return np.resize(period, length)


def _ink(part: np.ndarray, on: np.ndarray, axis: int, colour: style.Colour) -> None:
    where = on[: part.shape[axis]]
    if axis:
        part[:, where] = colour
    else:
        part[where] = colour


def _place(area: Area, size: tuple[int, int], picture: tuple[int, int], taken: Sequence[Area]) -> Area:
    """Above the box, below it, or inside along its left side: the first that is free, else the least covered."""
    left, top, right, bottom = area
    wide, high = size
    corners = ((left, top - high), (right - wide, top - high), (left, bottom), (right - wide, bottom))
    inside = ((x, y) for y in range(top, max(top, bottom - high) + 1, high) for x in (left, right - wide))
    found = []
    for x, y in (*corners, *inside):
        x, y = max(0, min(x, picture[0] - wide)), max(0, min(y, picture[1] - high))
        where = x, y, x + wide, y + high
        covered = sum(_shared(where, each) for each in taken)
        if not covered:
            return where
        found.append((covered, where))
    return min(found)[1]


def _shared(one: Area, other: Area) -> int:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, wide) * max(0, high)


def _label(canvas: np.ndarray, where: Area, text: str, look: Style, scale: int) -> None:
    left, top, right, bottom = where
    canvas[top:bottom, left:right] = look.colour
    ink = font.mask(text, scale)
    part = canvas[top + scale : bottom - scale, left + scale : right]
    part[ink[: part.shape[0], : part.shape[1]]] = look.against
