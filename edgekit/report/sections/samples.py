"""Show the raw samples: figures of some samples, the size of each split, and the changes made while reading."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core import tasks
from edgekit.report import overlays
from edgekit.report.figures import DARK, PLAIN_TEXT_STYLE, close_figure
from edgekit.report.formatting import count
from edgekit.report.overlays import LABEL_OVERLAYS
from edgekit.report.tables import Table
from edgekit.runner import input_vector

if TYPE_CHECKING:
    from edgekit.data import Data

FEATURES = 10
ROWS, COLUMNS = 2, 6
POINTS = 20_000
"""Number of points in a curve: more than such a small figure can show."""
MAX_LEGEND_CHANNELS = 6
"""Largest number of channels in the legend, because further ones would repeat the colours."""
MAX_LABEL_LETTERS = 18
"""Largest number of characters of a label above a sample."""
MAX_TEXT_LINES = 9
"""Largest number of lines of a text."""
MAX_TENSORS = 4
"""Largest number of tensors of a sample that are drawn."""
CHANNELS = (1, 3)
"""A tensor with an axis of this length is drawn as an image."""
X_LABELS = {kind: "time →" for kind in ("vector", "audio", "window")} | {
    "tensors": "all tensors, one behind the other →"
}
"""The label of the x axis, by kind of samples."""


def table(data: Data) -> Table:
    """Show twelve training samples with their labels and first features, from every class in turn."""
    train = data.train
    more = train.x.shape[1] - FEATURES
    columns = ["label", *(f"feature {place}" for place in range(min(FEATURES, train.x.shape[1])))]
    rows = [
        [label_text(data, train.y[place]), *(f"{value:.4g}" for value in train.x[place][:FEATURES])]
        for place in one_of_each_class(train.y, 12)
    ]
    return Table(columns, rows, f"the first {FEATURES} of {train.x.shape[1]} features" if more > 0 else "")


def notes_table(data: Data) -> Table | None:
    """Show the notes on data that was skipped or changed while reading.

    Returns None if there are none, because a notebook does not show None.
    """
    return Table(("what was skipped or changed in the data",), [(line,) for line in data.notes]) if data.notes else None


def splits_table(data: Data) -> Table:
    """Show the number of samples of each class in every split or, for numeric labels, their mean and range."""
    labels_by_split = {"train": data.train.y, "calibration": data.calibration.y, "validation": data.validation.y}
    if data.task in tasks.BOX_TASKS:
        return _boxes(labels_by_split, data.classes)
    if data.train.y.dtype.kind == "f":
        rows = [
            (name, count(len(y)), title, *(f"{value:.4g}" for value in (column.min(), column.mean(), column.max())))
            for name, y in labels_by_split.items()
            for title, column in zip(data.classes, y.T, strict=True)
        ]
        return Table(("split", "samples", "value", "lowest", "mean", "highest"), rows)
    counts = {name: _counts(y, len(data.classes)) for name, y in labels_by_split.items()}
    rows = [(label, *(count(of[place]) for of in counts.values())) for place, label in enumerate(data.classes)]
    return Table(("class", *labels_by_split), [*rows, ("samples", *(count(len(y)) for y in labels_by_split.values()))])


def _boxes(labels_by_split: Mapping[str, np.ndarray], names: Sequence[str]) -> Table:
    """Show the number of boxes of each class, and of images, in every split."""
    rows = [
        (label, *(count(int((y[:, 1:, 0] == kind).sum())) for y in labels_by_split.values()))
        for kind, label in enumerate(names)
    ]
    return Table(
        ("class", *labels_by_split),
        [*rows, ("pictures", *(count(len(y)) for y in labels_by_split.values()))],
        "boxes of a class",
    )


def _counts(y: np.ndarray, classes: int) -> list[int]:
    if y.ndim == 3:  # masks: images with at least one pixel of the class
        return [int((y == label).any(axis=(1, 2)).sum()) for label in range(classes)]
    if y.ndim == 2:
        return [int(number) for number in y.sum(axis=0)]
    return [int((y == label).sum()) for label in range(classes)]


def figure(data: Data) -> Figure:
    """Draw twelve training samples with their labels, from every class in turn, as images or curves.

    Samples with several tensors have a row for each tensor, because their values may differ greatly in size.
    """
    if data.tensors:
        return _of_tensors(data)
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, grid = plt.subplots(ROWS, COLUMNS, figsize=(7.6, 3.0), layout="constrained")
        places = one_of_each_class(data.train.y, grid.size)
        for axes in grid.flat[len(places) :]:
            axes.set_axis_off()
        for axes, place in zip(grid.flat, places, strict=False):
            draw_sample(axes, data.train.x[place], data.kind, sample_text(data, data.train.x[place]))
            if data.task in LABEL_OVERLAYS:
                skeleton = {"skeleton": data.keypoints.skeleton} if data.keypoints else {}
                LABEL_OVERLAYS[data.task].label(axes, data.train.y[place], **skeleton)
            axes.set_title(
                textwrap.shorten(label_text(data, data.train.y[place]), MAX_LABEL_LETTERS, placeholder="…"), fontsize=8
            )
        if data.task in LABEL_OVERLAYS:
            handles = (
                overlays.mask_legend(data.classes)
                if data.task == "segmentation"
                else overlays.box_legend(data.classes, False)
            )
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8)
        if data.kind in X_LABELS:
            figure.supxlabel(X_LABELS[data.kind], fontsize=8)
        if columns := getattr(data, "columns", None):  # the axes of windows, by name
            figure.legend(
                figure.axes[0].lines,
                columns[:MAX_LEGEND_CHANNELS],
                loc="outside upper center",
                ncols=MAX_LEGEND_CHANNELS,
                fontsize=8,
            )
    return close_figure(figure)


def _of_tensors(data: Data) -> Figure:
    tensors = (data.tensors or ())[:MAX_TENSORS]
    places = one_of_each_class(data.train.y, COLUMNS)
    parts = input_vector.split(data.train.x[places], [each["shape"] for each in data.tensors or ()])
    with plt.rc_context(PLAIN_TEXT_STYLE):
        height = 0.4 + 1.2 * len(tensors)
        figure, grid = plt.subplots(
            len(tensors), COLUMNS, figsize=(7.6, height), layout="constrained", squeeze=False, sharey="row"
        )
        for axes in grid[:, len(places) :].flat:
            axes.set_axis_off()
        for row, (tensor, part) in enumerate(zip(tensors, parts, strict=False)):
            for axes, place, values in zip(grid[row], places, part, strict=False):
                _draw_tensor(axes, values)
                if row == 0:
                    axes.set_title(
                        textwrap.shorten(label_text(data, data.train.y[place]), MAX_LABEL_LETTERS, placeholder="…"),
                        fontsize=8,
                    )
            grid[row, 0].set_ylabel(textwrap.shorten(tensor["name"], MAX_LABEL_LETTERS, placeholder="…"), fontsize=8)
    return close_figure(figure)


def _draw_tensor(axes: Axes, values: np.ndarray) -> None:
    """Draw a tensor with 1 or 3 channels as a grey image in its own range, and anything else as curves."""
    if values.ndim == 3 and values.shape[0] in CHANNELS:
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] in CHANNELS:
        axes.imshow(values.mean(axis=2), cmap="gray")
        axes.set(xticks=[], yticks=[])
        return
    draw_sample(axes, values.reshape(len(values), -1) if values.ndim > 1 else values, "tensors")


def one_of_each_class(y: np.ndarray, count: int) -> list[int]:
    """Return the indices of up to `count` samples, from every class in turn.

    If the labels are not classes, these are the first samples.
    """
    if y.ndim != 1 or y.dtype.kind == "f":
        return list(range(min(count, len(y))))
    of_class = [np.flatnonzero(y == label) for label in np.unique(y)]
    rounds = (places[turn] for turn in range(count) for places in of_class if turn < len(places))
    return sorted((int(place) for place, _ in zip(rounds, range(count), strict=False)), key=lambda place: int(y[place]))


def label_text(data: Data, label: Any) -> str:
    """Return a label in words: its class or classes, its values, or the number of objects in an image."""
    if data.task in LABEL_OVERLAYS:
        return str(tasks.load_task(data.task).describe_labels(label[None], data.classes)[0])
    values = np.atleast_1d(label)
    if values.dtype.kind == "f":
        return ", ".join(f"{value:.3g}" for value in values)
    if np.ndim(label):
        return ", ".join(data.classes[place] for place in np.flatnonzero(values)) or "none"
    return data.classes[int(label)]


def sample_text(data: Data, sample: np.ndarray) -> str:
    """Return the words of a text sample, from its token ids. The result is empty for other samples."""
    if data.kind != "text":
        return ""
    from edgekit.data.texts import text_of_sample

    return text_of_sample(data, sample)


def draw_sample(axes: Axes, sample: np.ndarray, kind: str, words: str = "") -> None:
    """Draw a raw sample: an image, curves, or a text as its `words` or else its token ids."""
    if kind == "text":
        whole = words or " ".join(map(str, sample.tolist()))
        shown = textwrap.wrap(whole, MAX_LABEL_LETTERS, max_lines=MAX_TEXT_LINES, placeholder=" …")
        axes.text(0, 1, "\n".join(shown), fontsize=6, va="top")
        axes.set_axis_off()
        return
    if kind == "image":
        axes.imshow(sample.squeeze(-1) if sample.shape[-1] == 1 else sample, cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()
        return
    axes.plot(sample[:: max(1, len(sample) // POINTS)], color=DARK if sample.ndim == 1 else None, linewidth=0.7)
    axes.tick_params(labelsize=6, labelbottom=False)
