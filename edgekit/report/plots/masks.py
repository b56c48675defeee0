"""A mask over its picture: a colour for each class, by its number, and nothing where none is known."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from edgekit.runner.masks import UNKNOWN

COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
"""What colour-blind people tell apart (Okabe and Ito 2008); an eighth class has the first again."""
OPACITY = 110


def overlay(axes: Axes, mask: np.ndarray) -> None:
    """Draw a mask (height, width) uint8 over the picture in `axes`; the first class, often the background, is clear."""
    colours = np.zeros((UNKNOWN + 1, 4), np.uint8)
    colours[1:UNKNOWN, :3] = np.resize(np.array(COLOURS, np.uint8), (UNKNOWN - 1, 3))
    colours[1:UNKNOWN, 3] = OPACITY
    axes.imshow(colours[mask])
