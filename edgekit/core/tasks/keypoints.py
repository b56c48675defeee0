"""Detect objects in pictures, each with a class, a box and keypoints. Accuracy is the mean average precision by OKS.

Labels are (n, 1 + most, 7 + 3 · keypoints) float32: class, left, top, right and bottom in pixels of the sample, the
area of the object in square pixels, 1 for a crowd and otherwise 0, and for each keypoint x, y and 0 (not labelled), 1
(hidden) or 2 (visible). The first row describes the sample itself and begins with (-1, 0, 0, width, height); later rows
with the class -1 are empty. Outputs are (n, points, 6 + 3 · keypoints), as described in `edgekit/runner/keypoints.py`.

The object keypoint similarity (OKS) of a predicted and a labelled object is the mean, over the labelled keypoints, of
exp(-d² / (2 s² k²)), where d is the distance of the two points, s² the area of the object, and k twice the deviation
with which people label such a point (Ronchi and Perona, ICCV 2017). It takes the place of the overlap of boxes. As in
COCO's own code, crowds and objects without a labelled keypoint do not count, and neither do predictions for them, and
at most 20 objects of each picture are taken into account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores, SecondMetric, detection
from edgekit.core.tasks.box_matches import BOX_FIELDS, MIN_LOGIT
from edgekit.core.tasks.detection import (
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
from edgekit.runner.boxes import FIELDS, Boxes, area
from edgekit.runner.keypoints import VALUES, Decoder

__all__ = ["accuracy", "check_split", "constant_answer", "default_names", "drop", "strata"]

METRIC = "OKS mAP@0.5"
METRIC_TEXT = (
    "accuracy is the mean over the classes of the average precision, where the keypoints of an object must be similar "
    "to its label by a half (OKS)"
)
OUTPUTS_NAME = "classes"
AT_MOST_ONE = False
RECONSTRUCTS = False
NEEDS_SHAPE = True
GROUP, SCORE, SCORE_RISES = "class", "AP@0.5", True
CORRECT_WHEN = "every labelled object is found with a probability of one half or more, and nothing else"
SECOND = SecondMetric("OKS mAP@0.5:0.95", "averages it over similarities from 0.5 to 0.95", mean_accuracy_over_overlaps)

LABEL_FIELDS = BOX_FIELDS + 2
"""Columns of a label before its keypoints."""
AREA, CROWD = BOX_FIELDS, BOX_FIELDS + 1
ANSWER_FIELDS = BOX_FIELDS + 1
"""Columns of an answer before its keypoints: class, left, top, right, bottom, logit."""
EVALUATION_OPTIONS = detection.EVALUATION_OPTIONS._replace(most=20)
PERSON_DEVIATIONS = (
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
    0.089,
)  # fmt: skip
"""Deviations with which people label the 17 keypoints of COCO's persons, as shares of the square root of the area."""
AREA_OF_BOX = 0.53
"""Area of an object as a share of its box, where only the box is known; the usual value for persons."""


class Poses(NamedTuple):
    """Objects of one picture: their boxes, best first, and keypoints (n, keypoints, 3) of x, y and visibility."""

    boxes: Boxes
    keypoints: np.ndarray


def deviations(keypoints: int) -> np.ndarray:
    """Return the deviation of each keypoint: COCO's for 17, and otherwise 1 / keypoints for each, as is usual."""
    return np.array(PERSON_DEVIATIONS if keypoints == len(PERSON_DEVIATIONS) else [1 / keypoints] * keypoints)


def keypoint_count(y: np.ndarray) -> int:
    """Return the number of keypoints in labels (n, 1 + most, 7 + 3 · keypoints)."""
    return int(y.shape[2] - LABEL_FIELDS) // VALUES


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the labels as float32, after checking boxes, areas and keypoints."""
    if y.ndim != 3 or y.shape[1] < 2 or y.shape[2] <= LABEL_FIELDS or (y.shape[2] - LABEL_FIELDS) % VALUES:
        raise DataError(
            f"{name}: labels of keypoints are (n, 1 + most, {LABEL_FIELDS} + 3 for each keypoint), got {y.dtype} of "
            f"shape {y.shape}"
        )
    table = y.astype(np.float32)
    detection.normalize_labels(name, table[..., :BOX_FIELDS], names)
    objects = table[:, 1:]
    visibility = objects[..., LABEL_FIELDS + 2 :: VALUES]
    is_bad = (objects[..., AREA] < 0) | ~np.isin(objects[..., CROWD], (0, 1))
    is_bad |= ~np.isin(visibility, (0, 1, 2)).all(axis=2) | ~np.isfinite(objects).all(axis=2)
    is_bad &= objects[..., 0] >= 0
    if is_bad.any():
        sample, row = np.argwhere(is_bad)[0]
        raise DataError(
            f"{name}: object {row} of sample {sample} is {objects[sample, row].tolist()}; it needs an area of 0 or "
            "more, 0 or 1 for a crowd, and finite keypoints, each with the visibility 0, 1 or 2"
        )
    return table


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return (n, classes + 3 · 100), as `detection.score_samples` does; only labels that count are counted."""
    given, labelled = outputs.shape[2] - FIELDS, y.shape[2] - LABEL_FIELDS
    if given != labelled:
        raise DataError(
            f"the network gives {given // VALUES} keypoints, but the labels have {labelled // VALUES}; both must be "
            "the same, in the same order"
        )
    size, classes = (int(y[0, 0, 4]), int(y[0, 0, 3])), max(1, int(y[..., 0].max()) + 1)
    pictures = []
    for poses, labels in zip(decode(outputs, size), y, strict=True):
        objects = labels[1:][labels[1:, 0] >= 0]
        pictures.append((poses.boxes, match_poses(poses, objects), objects[~is_ignored(objects)][:, 0]))
    return SampleScores("keypoints", sample_values(classes, pictures))


def decode(outputs: np.ndarray, size: tuple[int, int], min_logit: float = -np.inf) -> Iterator[Poses]:
    """Yield the objects of each picture of (height, width), without those whose logit is lower."""
    decoder = Decoder(size, outputs.shape[1], EVALUATION_OPTIONS)
    for each in outputs:
        boxes, keypoints = decoder(each)
        likely = boxes.logits >= min_logit
        yield Poses(Boxes(*(part[likely] for part in boxes)), keypoints[likely])


def match_poses(poses: Poses, labels: np.ndarray) -> np.ndarray:
    """Return the bits (objects,) of `detection.FIELDS_PER_BOX` for labels (n, 7 + 3 · keypoints)."""
    return match_bits(match_labels(poses, labels), is_ignored(labels))


def match_labels(poses: Poses, labels: np.ndarray) -> np.ndarray:
    """Return for each object the label that it matches, (objects, similarities), see `object_matches`."""
    return matched_labels(
        poses.boxes,
        labels[:, 0],
        is_ignored(labels),
        labels[:, CROWD] > 0,
        lambda indices, places: similarities(poses.keypoints[indices], labels[places]),
    )


def similarities(keypoints: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return (objects, labels) float64: the OKS of keypoints (objects, keypoints, 3) and labels (n, 7 + 3 · keypoints).

    For a label without keypoints, the distances are those to its box, made larger by its own size on each side.
    """
    points = labels[:, LABEL_FIELDS:].reshape(len(labels), -1, VALUES).astype(np.float64)
    is_labelled: np.ndarray = points[..., 2] > 0
    has_points = np.asarray(is_labelled.any(axis=1))
    places = keypoints[:, None, :, :2].astype(np.float64)
    first, last = labels[:, None, 1:3].astype(np.float64), labels[:, None, 3:5].astype(np.float64)
    span = last - first
    outside = np.maximum(0, first - span - places) + np.maximum(0, places - last - span)
    apart = np.where(has_points[:, None, None], places - points[..., :2], outside)
    variances = (2 * deviations(points.shape[1])) ** 2
    scaled = np.square(apart).sum(axis=3) / variances / (labels[:, AREA, None] + np.spacing(1)) / 2
    weights: np.ndarray = is_labelled | ~has_points[:, None]
    result: np.ndarray = (np.exp(-scaled) * weights).sum(axis=2) / weights.sum(axis=1)
    return result


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which samples have nearly the same confident objects in both answers."""
    size = picture_size(inputs)
    pairs = zip(decode(reference, size, MIN_LOGIT), decode(outputs, size, MIN_LOGIT), strict=True)
    return np.array([_shared(other, _as_labels(one)) >= MIN_SHARED_BOXES for one, other in pairs])


def best_probability(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the threshold, in steps of 0.05, at which the F1 of all objects at a similarity of one half is highest."""
    return best_threshold(score_samples(outputs, None, y).values)


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the objects, (n, 20, 6 + 3 · keypoints) float32.

    The columns are the class (-1: no object), left, top, right, bottom, the logit, and x, y and the logit of the
    visibility of each keypoint.
    """
    columns = ANSWER_FIELDS + outputs.shape[2] - FIELDS
    result = np.full((len(outputs), EVALUATION_OPTIONS.most, columns), -1, dtype=np.float32)
    for row, (boxes, keypoints) in zip(result, decode(outputs, picture_size(inputs)), strict=True):
        count = len(boxes.logits)
        flat = keypoints.reshape(count, columns - ANSWER_FIELDS)
        row[:count] = np.column_stack([boxes.classes, boxes.sides, boxes.logits, flat])
    return result


def poses_of_answer(answer: np.ndarray, min_logit: float = MIN_LOGIT) -> Poses:
    """Return the objects of an answer (20, 6 + 3 · keypoints) that have at least this logit."""
    rows = answer[(answer[:, 0] >= 0) & (answer[:, BOX_FIELDS] >= min_logit)]
    boxes = Boxes(rows[:, 1:BOX_FIELDS], rows[:, BOX_FIELDS], rows[:, 0].astype(np.int64))
    count = (rows.shape[1] - ANSWER_FIELDS) // VALUES
    return Poses(boxes, rows[:, ANSWER_FIELDS:].reshape(len(rows), count, VALUES))


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which pictures the confident objects match the labels one to one."""
    correct: np.ndarray = closeness(answers, y) == 1
    return correct


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for each picture, the F1 of its confident objects and its labels, (n,)."""
    return np.array([_shared(poses_of_answer(answer), label[1:]) for answer, label in zip(answers, y, strict=True)])


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the classes, each with its average precision and the numbers of correct and wrong confident objects."""
    return [class_group(title, _of_class(answers, y, kind)) for kind, title in enumerate(names)]


def _of_class(answers: np.ndarray, y: np.ndarray, kind: int) -> Iterator[tuple[Boxes, np.ndarray, int]]:
    """Yield the objects of a class in each picture, their bits, and the number of its labels that count."""
    for answer, label in zip(answers, y, strict=True):
        poses = poses_of_answer(answer[answer[:, 0] == kind], -np.inf)
        objects = label[1:][label[1:, 0] == kind]
        yield poses.boxes, match_poses(poses, objects), int((~is_ignored(objects)).sum())


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of confident objects of each class."""
    return [describe_counts(poses_of_answer(answer).boxes.classes, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of labelled objects of each class, without crowds."""
    return [describe_counts(label[1:][label[1:, CROWD] <= 0][:, 0], names) for label in y]


def is_ignored(labels: np.ndarray) -> np.ndarray:
    """Return which labels do not count, because they are crowds or have no keypoint."""
    ignored: np.ndarray = (labels[:, CROWD] > 0) | ~(labels[:, LABEL_FIELDS + 2 :: VALUES] > 0).any(axis=1)
    return ignored


def _as_labels(poses: Poses) -> np.ndarray:
    """Return predicted objects as labels; the keypoints that are likely to be visible count, or all if none is."""
    keypoints = poses.keypoints.copy()
    seen = keypoints[..., 2] >= MIN_LOGIT
    keypoints[..., 2] = np.where(seen | ~seen.any(axis=1, keepdims=True), 2, 0)
    areas = AREA_OF_BOX * area(poses.boxes.sides)
    flat = keypoints.reshape(len(keypoints), keypoints.shape[1] * VALUES)
    return np.column_stack([poses.boxes.classes, poses.boxes.sides, areas, np.zeros_like(areas), flat])


def _shared(poses: Poses, labels: np.ndarray) -> float:
    """Return the F1 of objects and labels, without those that do not count."""
    labels = labels[labels[:, 0] >= 0]
    return f1(match_poses(poses, labels), int((~is_ignored(labels)).sum()))
