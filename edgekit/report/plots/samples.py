"""Some raw samples: what figures about them do not show."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core import tasks
from edgekit.report.plots import boxes, masks
from edgekit.report.plots.style import DARK, NAMING, done

if TYPE_CHECKING:
    from edgekit.data import Data

ROWS, COLUMNS = 2, 6
POINTS = 20_000
"""Of a curve: more than so small a picture can show."""
NAMED = 6
"""Channels in the legend: further ones have no colour of their own for long."""
LETTERS = 18
"""Of a label above a picture."""
IN_PICTURES: dict[str, Any] = {"detection": boxes, "segmentation": masks}
"""By task, what draws its labels and answers over a picture."""
LINES = 9
"""Of a text."""

ALONG = {kind: "time →" for kind in ("vector", "audio", "window")} | {"tensors": "all tensors, one behind the other →"}
"""What the curves of a kind of samples run along."""


def samples(data: Data) -> Figure:
    """Twelve samples of the train split with their labels, every class in turn; pictures, or curves over time."""
    with plt.rc_context(NAMING):
        figure, grid = plt.subplots(ROWS, COLUMNS, figsize=(7.6, 3.0), layout="constrained")
        places = in_turn(data.train.y, grid.size)
        for axes in grid.flat[len(places) :]:
            axes.set_axis_off()
        for axes, place in zip(grid.flat, places, strict=False):
            draw(axes, data.train.x[place], data.kind, said(data, data.train.x[place]))
            if data.task in IN_PICTURES:
                IN_PICTURES[data.task].label(axes, data.train.y[place])
            axes.set_title(textwrap.shorten(named(data, data.train.y[place]), LETTERS, placeholder="…"), fontsize=8)
        if data.task in IN_PICTURES:
            handles = masks.legend(data.classes) if data.task == "segmentation" else boxes.legend(data.classes, False)
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8)
        if data.kind in ALONG:
            figure.supxlabel(ALONG[data.kind], fontsize=8)
        if columns := getattr(data, "columns", None):  # of windows, by name
            figure.legend(figure.axes[0].lines, columns[:NAMED], loc="outside upper center", ncols=NAMED, fontsize=8)
    return done(figure)


def in_turn(y: np.ndarray, count: int) -> list[int]:
    """Places of at most `count` samples, one of each class, then a second; the first where labels are no classes."""
    if y.ndim != 1 or y.dtype.kind == "f":
        return list(range(min(count, len(y))))
    of_class = [np.flatnonzero(y == label) for label in np.unique(y)]
    rounds = (places[turn] for turn in range(count) for places in of_class if turn < len(places))
    return sorted((int(place) for place, _ in zip(rounds, range(count), strict=False)), key=lambda place: int(y[place]))


def named(data: Data, label: Any) -> str:
    """A label in words: its class, its classes, its numbers, or how many of what are in a picture."""
    if data.task in IN_PICTURES:
        return str(tasks.named(data.task).labels_in_words(label[None], data.classes)[0])
    values = np.atleast_1d(label)
    if values.dtype.kind == "f":
        return ", ".join(f"{value:.3g}" for value in values)
    if np.ndim(label):
        return ", ".join(data.classes[place] for place in np.flatnonzero(values)) or "none"
    return data.classes[int(label)]


def said(data: Data, sample: np.ndarray) -> str:
    """A text in words, from its token ids; empty for other samples."""
    if data.kind != "text":
        return ""
    from edgekit.data.texts import in_words

    return in_words(data, sample)


def draw(axes: Axes, sample: np.ndarray, kind: str, words: str = "") -> None:
    """One raw sample: a picture, curves, or a text in its `words`; without any, its token ids."""
    if kind == "text":
        whole = words or " ".join(map(str, sample.tolist()))
        shown = textwrap.wrap(whole, LETTERS, max_lines=LINES, placeholder=" …")
        axes.text(0, 1, "\n".join(shown), fontsize=6, va="top")
        axes.set_axis_off()
        return
    if kind == "image":
        axes.imshow(sample.squeeze(-1) if sample.shape[-1] == 1 else sample, cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()
        return
    axes.plot(sample[:: max(1, len(sample) // POINTS)], color=DARK if sample.ndim == 1 else None, linewidth=0.7)
    axes.tick_params(labelsize=6, labelbottom=False)
