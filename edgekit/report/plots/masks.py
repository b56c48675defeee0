"""Masks over a picture: that of its label, and an answer's; the first class, often the background, is left clear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from edgekit.core.tasks import segmentation
from edgekit.runner import drawing
from edgekit.runner.masks import UNKNOWN

OPACITY = 130
NAMED = 6
"""Classes in a legend."""


def label(axes: Axes, wanted: np.ndarray) -> str:
    """The mask (height, width) of a label, black where no class is known; how much of it is, in words."""
    _overlay(axes, wanted)
    return f"{(wanted != UNKNOWN).mean():.0%} labelled"


def answer(axes: Axes, said: np.ndarray, wanted: np.ndarray) -> str:
    """The cells (rows, columns) of an answer; the share of the labelled pixels that is right, in words."""
    _overlay(axes, said)
    return f"{segmentation.closeness(said[None], wanted[None])[0]:.0%} right"


def legend(names: Sequence[str]) -> list[Patch]:
    """What the colours mean."""
    return [Patch(color=_colour(kind), label=name) for kind, name in list(enumerate(names))[1 : 1 + NAMED]]


def _overlay(axes: Axes, mask: np.ndarray) -> None:
    colours = np.zeros((UNKNOWN + 1, 4), np.uint8)
    colours[1:, 3] = OPACITY
    for kind in range(1, UNKNOWN):
        colours[kind, :3] = drawing.style(kind).colour
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    axes.imshow(colours[mask], extent=(-0.5, right, bottom, -0.5), interpolation="nearest")


def _colour(kind: int) -> tuple[float, float, float]:
    red, green, blue = drawing.style(kind).colour
    return red / 255, green / 255, blue / 255
