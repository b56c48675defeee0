"""Validation pictures with their labels and what each variant answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from edgekit.report.figures import NAMING, done
from edgekit.report.overlays import OVERLAYS
from edgekit.report.sections.samples import draw

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

EXAMPLES = "evidence/examples.npz"
WIDTH, MOST_TALL = 7.6, 2.4
"""Inches: of the figure, and of a row of pictures."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Raw pictures `x` with their `labels`; `answers` (variants, pictures, …) are those of the task's own form."""

    task: str
    classes: tuple[str, ...]
    places: list[int]
    x: np.ndarray
    labels: np.ndarray
    variants: tuple[str, ...]
    answers: np.ndarray


def read(artifact: Artifact) -> Examples | None:
    """Of a benchmark; None where the answers of its task lie in no picture."""
    if not (artifact.path / EXAMPLES).is_file():
        return None
    with np.load(artifact.file(EXAMPLES), allow_pickle=False) as kept:
        return Examples(
            str(kept["task"]),
            tuple(kept["classes"].tolist()),
            kept["places"].tolist(),
            kept["x"],
            kept["labels"],
            tuple(kept["variants"].tolist()),
            kept["answers"],
        )


def figure(found: Examples) -> Figure:
    """A row for each picture: its label, then each variant's answer."""
    drawn, columns = OVERLAYS[found.task], ("label", *found.variants)
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
