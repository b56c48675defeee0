"""Detect objects in pictures, each with a class, a box and a mask. Accuracy is the mean average precision of the masks.

Labels are (n, 1 + most, 6 + runs) float32: class, left, top, right and bottom in pixels of the sample, 1 for a crowd
and otherwise 0, and the run lengths of the object's mask over the sample, in COCO's order, down each column; zeros fill
up the row. The first row describes the sample itself and begins with (-1, 0, 0, width, height); later rows with the
class -1 are empty. Outputs are (n, points + cells, 6 + coefficients), as described in
`edgekit/runner/instance_masks.py`.

The overlap of two masks, the pixels that they share divided by the pixels of both, takes the place of the overlap of
boxes. As in COCO's own code, crowds do not count, and neither do predictions that are inside of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores, SecondMetric, detection
from edgekit.core.tasks.box_matches import BOX_FIELDS, MIN_LOGIT, pairwise_overlaps
from edgekit.core.tasks.detection import (
    EVALUATION_OPTIONS,
    MIN_SHARED_BOXES,
    accuracy,
    best_threshold,
    check_split,
    constant_answer,
    default_names,
    describe_counts,
    drop,
    mean_accuracy_over_overlaps,
    picture_size,
    strata,
)
from edgekit.core.tasks.object_matches import class_group, f1, match_bits, matched_labels, sample_values
from edgekit.runner.boxes import Boxes
from edgekit.runner.instance_masks import Decoder, Mask, object_mask, run_lengths

__all__ = ["accuracy", "check_split", "constant_answer", "default_names", "drop", "strata"]

METRIC = "mask mAP@0.5"
METRIC_TEXT = (
    "accuracy is the mean over the classes of the average precision, where a mask must overlap its label by a half"
)
OUTPUTS_NAME = "classes"
AT_MOST_ONE = False
RECONSTRUCTS = False
NEEDS_SHAPE = True
GROUP, SCORE, SCORE_RISES = "class", "AP@0.5", True
CORRECT_WHEN = "every labelled object is found with a probability of one half or more, and nothing else"
SECOND = SecondMetric("mask mAP@0.5:0.95", "averages it over overlaps from 0.5 to 0.95", mean_accuracy_over_overlaps)

LABEL_FIELDS = BOX_FIELDS + 1
"""Columns of a label before its run lengths."""
CROWD = BOX_FIELDS
ANSWER_FIELDS = BOX_FIELDS + 6
"""Numbers of an object in an answer before its run lengths; see `answers`."""


class Instances(NamedTuple):
    """Objects of one picture: their boxes, best first, and a function that returns the mask of the object at an index.

    Masks are not kept, because those of many objects are large.
    """

    boxes: Boxes
    mask: Callable[[int], Mask]


class Labels(NamedTuple):
    """Labelled objects of one picture: their rows (n, 6 + runs) and masks (n, height, width) bool."""

    rows: np.ndarray
    masks: np.ndarray

    @property
    def is_crowd(self) -> np.ndarray:
        """Which objects are crowds, which do not count."""
        crowds: np.ndarray = self.rows[:, CROWD] > 0
        return crowds


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the labels as float32, after checking boxes, crowds and run lengths."""
    if y.ndim != 3 or y.shape[1] < 2 or y.shape[2] <= LABEL_FIELDS:
        raise DataError(
            f"{name}: labels of instance masks are (n, 1 + most, {LABEL_FIELDS} + runs), got {y.dtype} of shape "
            f"{y.shape}"
        )
    table = y.astype(np.float32)
    detection.normalize_labels(name, table[..., :BOX_FIELDS], names)
    objects, pixels = table[:, 1:], table[:, :1, 3] * table[:, :1, 4]
    runs = objects[..., LABEL_FIELDS:]
    with np.errstate(invalid="ignore"):
        is_bad = (runs < 0).any(axis=2) | (runs != np.floor(runs)).any(axis=2) | (runs.sum(axis=2) != pixels)
    is_bad |= ~np.isin(objects[..., CROWD], (0, 1))
    is_bad &= objects[..., 0] >= 0
    if is_bad.any():
        sample, row = np.argwhere(is_bad)[0]
        values = objects[sample, row]
        raise DataError(
            f"{name}: object {row} of sample {sample} has the crowd {values[CROWD]:g} and run lengths with the sum "
            f"{values[LABEL_FIELDS:].sum():g}; it needs 0 or 1 for a crowd, and whole numbers from 0 with the sum "
            f"{pixels[sample, 0]:g}, the pixels of the sample"
        )
    return table


def read_labels(label: np.ndarray) -> Labels:
    """Return the objects in a label (1 + most, 6 + runs)."""
    width, height = label[0, 3:BOX_FIELDS].astype(int).tolist()
    rows = label[1:][label[1:, 0] >= 0]
    masks = [from_runs(row[LABEL_FIELDS:], (height, width)) for row in rows]
    return Labels(rows, np.stack(masks) if masks else np.zeros((0, height, width), bool))


def from_runs(runs: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the pixels (height, width) bool that have these run lengths."""
    height, width = size
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs.astype(np.int64))
    return flat.reshape(width, height).T


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return (n, classes + 3 · 100), as `detection.score_samples` does; only labels that count are counted."""
    size, classes = (int(y[0, 0, 4]), int(y[0, 0, 3])), max(1, int(y[..., 0].max()) + 1)
    pictures = []
    for instances, label in zip(decode(outputs, size), y, strict=True):
        labels = read_labels(label)
        pictures.append((instances.boxes, match_masks(instances, labels), labels.rows[~labels.is_crowd][:, 0]))
    return SampleScores("instance_masks", sample_values(classes, pictures))


def decode(outputs: np.ndarray, size: tuple[int, int], min_logit: float = -np.inf) -> Iterator[Instances]:
    """Yield the objects of each picture of (height, width), without those whose logit is lower."""
    decoder = Decoder(size, outputs.shape[1], EVALUATION_OPTIONS)
    for each in outputs:
        found, coefficients, prototypes = decoder(each)
        likely = found.logits >= min_logit
        boxes = Boxes(*(part[likely] for part in found))
        yield Instances(boxes, partial(_mask, boxes.sides.tolist(), coefficients[likely], prototypes))


def _mask(sides: list[list[float]], coefficients: np.ndarray, prototypes: np.ndarray, index: int) -> Mask:
    """Return the mask of one of a picture's objects."""
    return object_mask(coefficients[index], prototypes, sides[index])


def match_masks(instances: Instances, labels: Labels) -> np.ndarray:
    """Return the bits (objects,) of `detection.FIELDS_PER_BOX`."""
    return match_bits(match_labels(instances, labels), labels.is_crowd)


def match_labels(instances: Instances, labels: Labels) -> np.ndarray:
    """Return for each object the label that it matches, (objects, overlaps), see `object_matches`."""
    crowds = labels.is_crowd
    return matched_labels(
        instances.boxes,
        labels.rows[:, 0],
        crowds,
        crowds,
        lambda indices, places: overlaps(instances, indices, labels, places),
    )


def overlaps(instances: Instances, indices: np.ndarray, labels: Labels, places: np.ndarray) -> np.ndarray:
    """Return (objects, labels) float64: the shared pixels of the masks at these places, divided by those of both.

    For a crowd, they are divided by the pixels of the predicted mask alone.
    """
    extents = np.array([_extent(labels.masks[place]) for place in places]).reshape(-1, 4)
    result = np.zeros((len(indices), len(places)))
    touches = pairwise_overlaps(instances.boxes.sides[indices], extents) > 0
    areas, is_crowd = labels.masks[places].sum(axis=(1, 2)), labels.is_crowd[places]
    for row in np.flatnonzero(touches.any(axis=1)):
        mask = instances.mask(int(indices[row]))
        area = int(mask.pixels.sum())
        for column in np.flatnonzero(touches[row]):
            shared = int((labels.masks[places[column]][mask.window] & mask.pixels).sum())
            both = area if is_crowd[column] else area + int(areas[column]) - shared
            result[row, column] = shared / both if shared else 0.0
    return result


def _extent(pixels: np.ndarray) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a mask; zeros if it is empty."""
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    return (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1) if len(rows) else (0, 0, 0, 0)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which samples have nearly the same confident objects in both answers.

    Objects whose masks have no pixel are left out.
    """
    size = picture_size(inputs)
    answers = (map(_with_pixels, decode(each, size, MIN_LOGIT)) for each in (reference, outputs))
    pairs = zip(*answers, strict=True)
    return np.array([_shared(other, _as_labels(one, size)) >= MIN_SHARED_BOXES for one, other in pairs])


def _with_pixels(instances: Instances) -> Instances:
    """Return the objects whose masks have a pixel."""
    every = range(len(instances.boxes.logits))
    kept = np.array([index for index in every if instances.mask(index).pixels.any()], dtype=np.int64)
    return Instances(Boxes(*(part[kept] for part in instances.boxes)), lambda index: instances.mask(int(kept[index])))


def best_probability(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the threshold, in steps of 0.05, at which the F1 of all objects at an overlap of one half is highest."""
    return best_threshold(score_samples(outputs, None, y).values)


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the objects, (n, numbers) float32, one after another and then -1 up to the longest answer.

    The numbers of an object are its class, left, top, right and bottom of its box, the logit; left, top, height and
    width of the part of the sample that its mask covers, the number of run lengths of this part, and the run lengths.
    """
    rows = []
    for boxes, mask_of in decode(outputs, picture_size(inputs)):
        numbers: list[float] = []
        for index, sides in enumerate(boxes.sides.tolist()):
            mask = mask_of(index)
            runs = run_lengths(mask.pixels)
            place = mask.left, mask.top, *mask.pixels.shape, len(runs)
            numbers += [int(boxes.classes[index]), *sides, float(boxes.logits[index]), *place, *runs]
        rows.append(np.array(numbers, dtype=np.float32))
    result = np.full((len(rows), max(map(len, rows), default=0) + 1), -1, dtype=np.float32)
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result


def instances_of_answer(answer: np.ndarray, min_logit: float = MIN_LOGIT, kind: int | None = None) -> Instances:
    """Return the objects of an answer (numbers,) that have at least this logit, and the class `kind` if it is given."""
    rows: list[np.ndarray] = []
    start = 0
    while answer[start] >= 0:
        end = start + ANSWER_FIELDS + int(answer[start + ANSWER_FIELDS - 1])
        if answer[start + BOX_FIELDS] >= min_logit and kind in (None, int(answer[start])):
            rows.append(answer[start:end])
        start = end
    table = np.array([row[: BOX_FIELDS + 1] for row in rows], dtype=np.float32).reshape(-1, BOX_FIELDS + 1)
    boxes = Boxes(table[:, 1:BOX_FIELDS], table[:, BOX_FIELDS], table[:, 0].astype(np.int64))
    return Instances(boxes, lambda index: _mask_of_row(rows[index]))


def _mask_of_row(row: np.ndarray) -> Mask:
    left, top, height, width = row[BOX_FIELDS + 1 : BOX_FIELDS + 5].astype(int).tolist()
    return Mask(from_runs(row[ANSWER_FIELDS:], (height, width)), left, top)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which pictures the confident objects match the labels one to one."""
    correct: np.ndarray = closeness(answers, y) == 1
    return correct


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for each picture, the F1 of its confident objects and its labels, (n,)."""
    pairs = zip(answers, y, strict=True)
    return np.array([_shared(instances_of_answer(answer), read_labels(label)) for answer, label in pairs])


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the classes, each with its average precision and the numbers of correct and wrong confident objects."""
    return [class_group(title, _of_class(answers, y, kind)) for kind, title in enumerate(names)]


def _of_class(answers: np.ndarray, y: np.ndarray, kind: int) -> Iterator[tuple[Boxes, np.ndarray, int]]:
    """Yield the objects of a class in each picture, their bits, and the number of its labels that count."""
    for answer, label in zip(answers, y, strict=True):
        instances = instances_of_answer(answer, -np.inf, kind)
        labels = read_labels(label[(label[:, 0] == kind) | (np.arange(len(label)) == 0)])
        yield instances.boxes, match_masks(instances, labels), int((~labels.is_crowd).sum())


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of confident objects of each class."""
    return [describe_counts(instances_of_answer(answer).boxes.classes, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of labelled objects of each class, without crowds."""
    return [describe_counts(label[1:][label[1:, CROWD] == 0][:, 0], names) for label in y]


def _as_labels(instances: Instances, size: tuple[int, int]) -> Labels:
    """Return predicted objects as labels."""
    boxes = instances.boxes
    rows = np.column_stack([boxes.classes, boxes.sides, np.zeros(len(boxes.classes))])
    masks = [instances.mask(index).in_picture(size) for index in range(len(rows))]
    return Labels(rows, np.stack(masks) if masks else np.zeros((0, *size), bool))


def _shared(instances: Instances, labels: Labels) -> float:
    """Return the F1 of objects and labels, without crowds."""
    return f1(match_masks(instances, labels), int((~labels.is_crowd).sum()))
