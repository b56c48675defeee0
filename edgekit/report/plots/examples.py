"""Pictures beside one another: what is in them, what the baseline finds, and what the variant that ships finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from edgekit.report.examples import Examples
from edgekit.report.plots import boxes, masks
from edgekit.report.plots.samples import draw
from edgekit.report.plots.style import NAMING, done

WIDTH, MOST_TALL = 7.6, 2.4
"""Inches: of the figure, and of a row of pictures."""


class Drawn(NamedTuple):
    """How a task's labels and answers are drawn over a picture; the two functions say what they drew, in words."""

    label: Callable[..., str]
    answer: Callable[..., str]
    legend: Callable[[Sequence[str]], list[Any]]


DRAWN = {
    "detection": Drawn(boxes.label, boxes.answer, boxes.legend),
    "segmentation": Drawn(masks.label, masks.answer, masks.legend),
}


def examples(found: Examples) -> Figure:
    """A row for each picture: its label, then each variant's answer."""
    drawn, columns = DRAWN[found.task], ("label", *found.variants)
    height, width = found.x.shape[1:3]
    tall = min(MOST_TALL, WIDTH / len(columns) * height / width)
    with plt.rc_context({**NAMING, "axes.grid": False}):
        figure, grid = plt.subplots(
            len(found.x), len(columns), figsize=(WIDTH, 0.5 + len(found.x) * (tall + 0.2)), layout="constrained",
            squeeze=False,
        )  # fmt: skip
        for row, (x, label) in enumerate(zip(found.x, found.labels, strict=True)):
            for axes, column in zip(grid[row], range(len(columns)), strict=True):
                draw(axes, x, "image")
                said = drawn.answer(axes, found.answers[column - 1][row], label) if column else drawn.label(axes, label)
                axes.set_title(f"{columns[column]}: {said}", fontsize=7, weight="normal")
        handles = drawn.legend(found.classes)
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8)
    return done(figure)
