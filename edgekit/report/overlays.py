"""Draw the boxes, keypoints or masks of a label over an image, or those of an answer with its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import Normal, Stroke

from edgekit.core.tasks import anomaly, instance_masks, keypoints, segmentation
from edgekit.core.tasks.box_matches import MIN_LOGIT, compare_boxes, select_boxes
from edgekit.runner.boxes import Boxes
from edgekit.runner.drawing import HEAT, heat_levels, style_of_class
from edgekit.runner.drawing import Colour as RGB
from edgekit.runner.instance_masks import Mask
from edgekit.runner.masks import UNKNOWN

LINE_WIDTH = 1.3
"""Width of a box's line in points; it is drawn between thin contrasting lines."""
SOLID: Literal["-"] = "-"
Colour = tuple[float, float, float]
Lines = Sequence[Sequence[int]]
MAX_LEGEND_CLASSES = 6
"""Largest number of classes in a legend."""
MASK_OPACITY = 130
"""Opacity of a mask, out of 255."""


def box_label(axes: Axes, label: np.ndarray) -> str:
    """Draw the boxes of a label, and return their number in words.

    `label` has shape (1 + n, 5), where n is the largest number of boxes in a label; its first row is not a box.
    """
    boxes = select_boxes(label[1:])
    for kind, sides in zip(boxes.classes, boxes.sides, strict=True):
        _draw_box(axes, int(kind), sides)
    return f"{len(boxes.classes)} labelled"


def box_answer(axes: Axes, answer: np.ndarray, label: np.ndarray) -> str:
    """Draw the confident boxes of an answer (100, 6): a cross marks a wrong box, a ring a missed label."""
    matches = compare_boxes(answer, label)
    for kind, sides, is_right in zip(matches.boxes.classes, matches.boxes.sides, matches.is_correct, strict=True):
        _draw_box(axes, int(kind), sides)
        if not is_right:
            _mark_box(axes, int(kind), sides, "x")
    for kind, sides, is_matched in zip(matches.labels.classes, matches.labels.sides, matches.is_found, strict=True):
        if not is_matched:
            _mark_box(axes, int(kind), sides, "o")
    wrong, missed = int((~matches.is_correct).sum()), int((~matches.is_found).sum())
    return f"{int(matches.is_correct.sum())} found, {wrong} wrong, {missed} missed"


def instance_label(axes: Axes, label: np.ndarray) -> str:
    """Draw boxes and masks of a label (1 + most, 6 + runs), and return the number of boxes in words."""
    labels = instance_masks.read_labels(label)
    for row, mask in zip(labels.rows, labels.masks, strict=True):
        _draw_instance(axes, int(row[0]), row[1:5], Mask(mask, 0, 0))
    return f"{len(labels.rows)} labelled"


def instance_answer(axes: Axes, answer: np.ndarray, label: np.ndarray) -> str:
    """Draw the confident objects of an answer (numbers,), with the marks of `box_answer`.

    What was found in a crowd is neither right nor wrong.
    """
    instances, labels = instance_masks.instances_of_answer(answer), instance_masks.read_labels(label)
    for index, (kind, sides) in enumerate(zip(instances.boxes.classes, instances.boxes.sides, strict=True)):
        _draw_instance(axes, int(kind), sides, instances.mask(index))
    return _mark(axes, instances.boxes, labels.rows, labels.is_crowd, instance_masks.match_labels(instances, labels))


def _draw_instance(axes: Axes, kind: int, sides: np.ndarray, mask: Mask) -> None:
    _draw_box(axes, kind, sides)
    colours = np.zeros((*mask.pixels.shape, 4), np.uint8)
    colours[mask.pixels] = (*style_of_class(kind).colour, MASK_OPACITY)
    rows, columns = mask.window
    limits = axes.get_xlim(), axes.get_ylim()
    extent = (columns.start - 0.5, columns.stop - 0.5, rows.stop - 0.5, rows.start - 0.5)
    if colours.size:
        axes.imshow(colours, extent=extent, interpolation="nearest")
    axes.set(xlim=limits[0], ylim=limits[1])


def box_legend(names: Sequence[str], with_marks: bool = True) -> list[Line2D]:
    """Return the legend of lines and marks."""
    lines = [
        Line2D([], [], color=_colour(kind), linestyle=_pattern(kind), linewidth=2, label=name)
        for kind, name in enumerate(names[:MAX_LEGEND_CLASSES])
    ]
    marks = [("x", "wrong"), ("o", "missed")] if with_marks else []
    return lines + [
        Line2D([], [], color="black", marker=mark, fillstyle="none", linestyle="none", label=name)
        for mark, name in marks
    ]


def pose_label(axes: Axes, label: np.ndarray, skeleton: Lines = ()) -> str:
    """Draw boxes and keypoints of a label (1 + most, 7 + 3 · keypoints), and return the number of boxes in words."""
    for row in label[1:][label[1:, 0] >= 0]:
        points = row[keypoints.LABEL_FIELDS :].reshape(-1, 3)
        _draw_pose(axes, int(row[0]), row[1:5], points[:, :2], points[:, 2] > 0, skeleton)
    return f"{int((label[1:, 0] >= 0).sum())} labelled"


def pose_answer(axes: Axes, answer: np.ndarray, label: np.ndarray, skeleton: Lines = ()) -> str:
    """Draw the confident objects of an answer (20, 6 + 3 · keypoints), with the marks of `box_answer`.

    What was found in a crowd, or in an object without labelled keypoints, is neither right nor wrong.
    """
    poses, objects = keypoints.poses_of_answer(answer), label[1:][label[1:, 0] >= 0]
    for index, (kind, sides) in enumerate(zip(poses.boxes.classes, poses.boxes.sides, strict=True)):
        points = poses.keypoints[index]
        _draw_pose(axes, int(kind), sides, points[:, :2], points[:, 2] >= MIN_LOGIT, skeleton)
    return _mark(axes, poses.boxes, objects, keypoints.is_ignored(objects), keypoints.match_labels(poses, objects))


def _mark(axes: Axes, boxes: Boxes, labels: np.ndarray, is_ignored: np.ndarray, matches: np.ndarray) -> str:
    """Mark the wrong objects and the missed labels, by the matches (objects, similarities); return the numbers."""
    at_half = matches[:, 0]
    is_right, is_wrong = np.append(~is_ignored, False)[at_half], at_half < 0
    for kind, sides in zip(boxes.classes[is_wrong], boxes.sides[is_wrong], strict=True):
        _mark_box(axes, int(kind), sides, "x")
    missed = ~is_ignored & ~np.isin(np.arange(len(labels)), at_half)
    for row in labels[missed]:
        _mark_box(axes, int(row[0]), row[1:5], "o")
    return f"{int(is_right.sum())} found, {int(is_wrong.sum())} wrong, {int(missed.sum())} missed"


def _draw_pose(
    axes: Axes, kind: int, sides: np.ndarray, points: np.ndarray, is_visible: np.ndarray, skeleton: Lines
) -> None:
    _draw_box(axes, kind, sides)
    outline = [Stroke(linewidth=3, foreground=_rgb_fractions(style_of_class(kind).against)), Normal()]
    lines = [points[list(line)] for line in skeleton if is_visible[list(line)].all()]
    for line in lines:
        axes.plot(*line.T, color=_colour(kind), linewidth=LINE_WIDTH, path_effects=outline)
    shown = points[is_visible]
    axes.plot(
        *shown.T, marker="o", markersize=3, linestyle="none", color=_colour(kind), path_effects=outline, clip_on=True
    )


def _draw_box(axes: Axes, kind: int, sides: np.ndarray) -> None:
    left, top, right, bottom = sides.tolist()
    around = (_rgb_fractions(style_of_class(kind).against), LINE_WIDTH + 1.2, SOLID)
    for colour, width, pattern in (around, (_colour(kind), LINE_WIDTH, _pattern(kind))):
        place = (left - 0.5, top - 0.5), right - left, bottom - top
        axes.add_patch(Rectangle(*place, fill=False, edgecolor=colour, linewidth=width, linestyle=pattern))


def _mark_box(axes: Axes, kind: int, sides: np.ndarray, mark: str) -> None:
    left, top, right, bottom = sides.tolist()
    against = _rgb_fractions(style_of_class(kind).against)
    axes.plot(
        [(left + right) / 2], [(top + bottom) / 2],
        marker=mark, markersize=6, fillstyle="none", color=_colour(kind), markeredgewidth=1.3, clip_on=False,
        path_effects=[Stroke(linewidth=3, foreground=against), Normal()],
    )  # fmt: skip


def _colour(kind: int) -> Colour:
    return _rgb_fractions(style_of_class(kind).colour)


def _rgb_fractions(colour: RGB) -> Colour:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255


def _pattern(kind: int) -> Literal["-"] | tuple[float, Sequence[float]]:
    pattern = style_of_class(kind).pattern
    return (0, tuple(part / 1.3 for part in pattern)) if pattern[1] else SOLID


def mask_label(axes: Axes, label: np.ndarray) -> str:
    """Draw the mask (height, width) of a label, black where no class is known.

    Returns in words the share of its pixels that are labelled.
    """
    _draw_mask(axes, label)
    return f"{(label != UNKNOWN).mean():.0%} labelled"


def mask_answer(axes: Axes, answer: np.ndarray, label: np.ndarray) -> str:
    """Draw the cells (rows, columns) of an answer, and return in words the share of labelled pixels that is right."""
    _draw_mask(axes, answer)
    return f"{segmentation.closeness(answer[None], label[None])[0]:.0%} right"


def mask_legend(names: Sequence[str]) -> list[Patch]:
    """Return the legend of the colours."""
    return [Patch(color=_colour(kind), label=name) for kind, name in list(enumerate(names))[1 : 1 + MAX_LEGEND_CLASSES]]


def _draw_mask(axes: Axes, mask: np.ndarray) -> None:
    colours = np.zeros((UNKNOWN + 1, 4), np.uint8)
    colours[1:, 3] = MASK_OPACITY
    for kind in range(1, UNKNOWN):
        colours[kind, :3] = style_of_class(kind).colour
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    axes.imshow(colours[mask], extent=(-0.5, right, bottom, -0.5), interpolation="nearest")


def anomaly_label(axes: Axes, label: np.ndarray) -> str:
    """Draw nothing, because labels have no position, and return the kind of the sample."""
    return anomaly.NAMES[int(label)]


def anomaly_answer(axes: Axes, answer: np.ndarray, label: np.ndarray) -> str:
    """Draw a map of distances (rows, columns), in multiples of the threshold, and return the largest in words."""
    colours = np.zeros((*answer.shape, 4), np.uint8)
    colours[..., :3], colours[..., 3] = HEAT, heat_levels(answer, 1.0)
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    axes.imshow(colours, extent=(-0.5, right, bottom, -0.5), interpolation="nearest")
    return f"{answer.max():.2f} × the threshold"


def anomaly_legend(names: Sequence[str]) -> list[Patch]:
    """Return the legend of the colour."""
    return [Patch(color=_rgb_fractions(HEAT), label="above the threshold; the paler, the nearer to the median")]


class Overlay(NamedTuple):
    """How the labels and answers of a task are drawn over an image. Both functions return in words what they drew.

    Those for keypoints take a `skeleton`, too: pairs of indices between which lines are drawn.
    """

    label: Callable[..., str]
    answer: Callable[..., str]
    legend: Callable[[Sequence[str]], list[Any]]


OVERLAYS = {
    "keypoints": Overlay(pose_label, pose_answer, box_legend),
    "instance_masks": Overlay(instance_label, instance_answer, box_legend),
    "detection": Overlay(box_label, box_answer, box_legend),
    "segmentation": Overlay(mask_label, mask_answer, mask_legend),
    "anomaly": Overlay(anomaly_label, anomaly_answer, anomaly_legend),
}
LABEL_OVERLAYS = {task: overlay for task, overlay in OVERLAYS.items() if task != "anomaly"}
"""The overlays of tasks whose labels have a position."""
