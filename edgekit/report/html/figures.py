"""Figures as they stand in the page: SVG in a data URI, its letters as outlines, with the size and words for `img`."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

CSS_PIXELS_PER_INCH = 96


@dataclass(frozen=True)
class Picture:
    """One figure; `alt` says in words what it shows, `caption` how to read it."""

    source: str
    width: int
    height: int
    alt: str
    caption: str


def picture(figure: Figure, alt: str, caption: str) -> Picture:
    """The same bytes for the same figure: no date, and names that do not depend on chance."""
    written = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "edgekit"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (math.ceil(side * CSS_PIXELS_PER_INCH) for side in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(written.getvalue()).decode()
    return Picture(source, width, height, alt, caption)
