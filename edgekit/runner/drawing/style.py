"""How classes look: a colour that colour-blind people tell from its neighbours (Okabe and Ito 2008), and a pattern.

Neighbouring classes differ in both, so that pictures in grey can be read as well.
"""

from __future__ import annotations

from typing import NamedTuple

Colour = tuple[int, int, int]
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
COLOURS: tuple[Colour, ...] = (
    (240, 228, 66),
    (0, 114, 178),
    (86, 180, 233),
    (213, 94, 0),
    (204, 121, 167),
    (230, 159, 0),
    (0, 158, 115),
)
PATTERNS = ((1, 0), (6, 3), (2, 2), (6, 2, 2, 2))
"""Of a line: so many of its thicknesses drawn, so many left open, and so on."""


class Style(NamedTuple):
    """A colour, what stands out against it, and the pattern of lines."""

    colour: Colour
    against: Colour
    pattern: tuple[int, ...]


def of(number: int) -> Style:
    """The look of a class by its number: another one for each of the first 28."""
    colour = COLOURS[number % len(COLOURS)]
    return Style(colour, BLACK if luminance(colour) > 0.2 else WHITE, PATTERNS[number % len(PATTERNS)])


def luminance(colour: Colour) -> float:
    """Relative luminance, 0 to 1 (ITU-R BT.709 of sRGB)."""
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in (value / 255 for value in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
