"""Show validation images with their labels and the answers of each variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from edgekit.report.figures import PLAIN_TEXT_STYLE, close_figure
from edgekit.report.overlays import OVERLAYS
from edgekit.report.sections.samples import draw_sample

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

EXAMPLES = "evidence/examples.npz"
WIDTH, MOST_TALL = 7.6, 2.4
"""Width of the figure and height of a row of pictures, in inches."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Raw images `x` with `labels`. `answers` (variants, images, …) have the form that the task defines.

    `options` are those of the task's overlay.
    """

    task: str
    classes: tuple[str, ...]
    places: list[int]
    x: np.ndarray
    labels: np.ndarray
    variants: tuple[str, ...]
    answers: np.ndarray
    options: dict[str, Any] = field(default_factory=dict)


def read(artifact: Artifact) -> Examples | None:
    """Return the examples of a benchmark, or None if the answers of its task have no position in an image."""
    if not (artifact.path / EXAMPLES).is_file():
        return None
    with np.load(artifact.file(EXAMPLES), allow_pickle=False) as file:
        return Examples(
            str(file["task"]),
            tuple(file["classes"].tolist()),
            file["places"].tolist(),
            file["x"],
            file["labels"],
            tuple(file["variants"].tolist()),
            file["answers"],
            {"skeleton": file["skeleton"].tolist()} if "skeleton" in file else {},
        )


def figure(examples: Examples) -> Figure:
    """Draw a row for each image: its label, then the answer of each variant."""
    overlay, columns = OVERLAYS[examples.task], ("label", *examples.variants)
    height, width = examples.x.shape[1:3]
    tall = min(MOST_TALL, WIDTH / len(columns) * height / width)
    with plt.rc_context({**PLAIN_TEXT_STYLE, "axes.grid": False}):
        figure, grid = plt.subplots(
            len(examples.x), len(columns), figsize=(WIDTH, 0.5 + len(examples.x) * (tall + 0.2)), layout="constrained",
            squeeze=False,
        )  # fmt: skip
        for row, (x, label) in enumerate(zip(examples.x, examples.labels, strict=True)):
            for axes, column in zip(grid[row], range(len(columns)), strict=True):
                draw_sample(axes, x, "image")
                description = (
                    overlay.answer(axes, examples.answers[column - 1][row], label, **examples.options)
                    if column
                    else overlay.label(axes, label, **examples.options)
                )
                axes.set_title(f"{columns[column]}: {description}", fontsize=7, weight="normal")
        handles = overlay.legend(examples.classes)
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8)
    return close_figure(figure)
