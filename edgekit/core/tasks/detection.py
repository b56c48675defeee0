"""Things in pictures, each with a class and a box; accuracy is the mean average precision at an overlap of a half.

Labels are (n, 1 + most, 5) float32: class, left, top, right, bottom, in pixels of the sample. The first row holds the
sample itself, (-1, 0, 0, width, height); rows with the class -1 after it are empty. Outputs are (n, points, 4 +
classes), as `edgekit/runner/boxes.py` has them.

Average precision is that of COCO (Lin et al., ECCV 2014): boxes of all pictures in the order of their scores, each
matched to the label of its class that it overlaps most and that is still free, precision made falling, and its mean at
101 recalls. At most 100 boxes of a picture count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores, SecondMetric
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop
from edgekit.core.tasks.box_matches import BOX_FIELDS, MIN_LOGIT, OVERLAPS, match_boxes, select_boxes
from edgekit.core.tasks.labels import quote_names
from edgekit.runner.boxes import BOX_SIDES, Boxes, BoxOptions, Decoder

METRIC = "mAP@0.5"
METRIC_TEXT = (
    "accuracy is the mean over the classes of the average precision, where a box must overlap its label by a half"
)
OUTPUTS_NAME = "classes"
AT_MOST_ONE = False
RECONSTRUCTS = False
NEEDS_SHAPE = True
GROUP, SCORE, SCORE_RISES = "class", "AP@0.5", True
CORRECT_WHEN = "every labelled thing is found with a probability of a half or more, and nothing else"

RECALLS = np.linspace(0, 1, 101)
EVALUATION_OPTIONS = BoxOptions(least_probability=0.01, overlap=0.5, most=100)
MIN_SHARED_BOXES = 0.8
"""Of the boxes of two answers, the share that both have, for the answers to be the same."""
FIELDS_PER_BOX = 3
"""Of each found box, in the marks: class, logit, and in which of the overlaps it is right, as bits."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Of labels (n, 1 + most, 5): "0", "1", …"""
    highest = int(y[..., 0].max()) if y.ndim == 3 and y.size else 0
    return tuple(str(index) for index in range(max(1, highest + 1)))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """(n, 1 + most, 5) float32, boxes inside their samples."""
    if y.ndim != 3 or y.shape[1] < 2 or y.shape[2] != BOX_FIELDS:
        raise DataError(
            f"{name}: labels of a detection are (n, 1 + most, {BOX_FIELDS}), got {y.dtype} of shape {y.shape}"
        )
    table = y.astype(np.float32)
    width, height = table[:, :1, 3], table[:, :1, 4]
    kinds, sides = table[:, 1:, 0], table[:, 1:, 1:]
    there = kinds >= 0
    bad = there & ((kinds >= len(names)) | (kinds != np.floor(kinds)))
    bad |= there & ((sides < 0).any(axis=2) | (sides[..., 2] > width) | (sides[..., 3] > height))
    bad |= there & ((sides[..., 2] <= sides[..., 0]) | (sides[..., 3] <= sides[..., 1]))
    if bad.any() or not np.isfinite(table).all():
        sample, row = np.argwhere(bad)[0] if bad.any() else (int(np.argwhere(~np.isfinite(table))[0][0]), 0)
        raise DataError(
            f"{name}: box {row} of sample {sample} is {table[sample, 1 + row].tolist()}; a box is class (0 to "
            f"{len(names) - 1}), left, top, right, bottom, inside its {int(width[sample, 0])}×{int(height[sample, 0])} "
            "pixels"
        )
    return table


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Every class must have a box in this split."""
    found = set(np.unique(y[:, 1:, 0]).astype(int).tolist())
    missing = [title for index, title in enumerate(names) if index not in found]
    if missing:
        raise DataError(
            f"{name}: no box of class {quote_names(missing)}; add pictures, raise data.limit, or remove the class"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """A picture counts for the rarest class in it; 0: nothing is in it."""
    kinds = y[:, 1:, 0].astype(np.int64)
    classes = max(1, int(kinds.max()) + 1)
    there = np.stack([(kinds == kind).any(axis=1) for kind in range(classes)], axis=1)
    rarest_first = np.argsort(there.sum(axis=0), kind="stable")
    ranked = there[:, rarest_first]
    return np.where(ranked.any(axis=1), rarest_first[ranked.argmax(axis=1)] + 1, 0).astype(np.int64)


def decode_boxes(
    outputs: np.ndarray, size: tuple[int, int], options: BoxOptions = EVALUATION_OPTIONS
) -> Iterator[Boxes]:
    """The boxes of each picture of (height, width), of outputs (n, points, 4 + classes)."""
    decode = Decoder(size, outputs.shape[1], options)
    return (decode(each) for each in outputs)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """(n, classes + 3 · 100): how many labels of each class a picture has, and what `FOUND` says of its boxes."""
    classes = outputs.shape[2] - BOX_SIDES
    size = int(y[0, 0, 4]), int(y[0, 0, 3])
    values = np.zeros((len(y), classes + FIELDS_PER_BOX * EVALUATION_OPTIONS.most))
    values[:, classes::FIELDS_PER_BOX] = -1
    for row, boxes, labels in zip(values, decode_boxes(outputs, size), y, strict=True):
        there = labels[1:][labels[1:, 0] >= 0]
        row[:classes] = np.bincount(there[:, 0].astype(np.int64), minlength=classes)
        of_boxes = row[classes:].reshape(EVALUATION_OPTIONS.most, FIELDS_PER_BOX)[: len(boxes.logits)]
        of_boxes[:, 0], of_boxes[:, 1], of_boxes[:, 2] = boxes.classes, boxes.logits, match_boxes(boxes, there)
    return SampleScores("detection", values)


def accuracy(marks: SampleScores) -> float:
    """Mean average precision at an overlap of a half."""
    return float(mean_average_precision(marks.values, np.ones((1, len(marks))))[0])


def mean_accuracy_over_overlaps(marks: SampleScores) -> float:
    """Mean average precision, averaged over overlaps from 0.5 to 0.95: COCO's own figure."""
    once = np.ones((1, len(marks)))
    return float(np.mean([mean_average_precision(marks.values, once, bit)[0] for bit in range(len(OVERLAPS))]))


SECOND = SecondMetric("mAP@0.5:0.95", "averages it over overlaps from 0.5 to 0.95", mean_accuracy_over_overlaps)


def drop(reference: SampleScores, marks: SampleScores, confidence: float) -> Drop:
    """By the bootstrap over pictures; `lost` are pictures with fewer labels found at an overlap of a half."""
    hits = [_hits(each.values) for each in (reference, marks)]
    worse = np.sign(hits[0] - hits[1])
    return bootstrap_drop(reference.values, marks.values, mean_average_precision, worse, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Where nearly all sure boxes of both overlap a box of the other, of the same class, by a half."""
    pairs = zip(_sure(reference, inputs), _sure(outputs, inputs), strict=True)
    return np.array([_shared(*pair) >= MIN_SHARED_BOXES for pair in pairs])


def best_probability(outputs: np.ndarray, y: np.ndarray) -> float:
    """The least probability, in steps of 0.05, with which the F1 of all boxes at an overlap of a half is highest."""
    marks = score_samples(outputs, None, y).values
    classes = outputs.shape[2] - BOX_SIDES
    boxes = marks[:, classes:].reshape(-1, FIELDS_PER_BOX)
    boxes, labels = boxes[boxes[:, 0] >= 0], marks[:, :classes].sum()
    shares = 1 / (1 + np.exp(-boxes[:, 1]))
    hits = boxes[:, 2].astype(np.int64) & 1
    steps = [round(0.05 * step, 2) for step in range(1, 20)]
    f1 = [2 * hits[shares >= step].sum() / max(1, (shares >= step).sum() + labels) for step in steps]
    return steps[int(np.argmax(f1))]


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Of no box at all."""
    return 0.0, "always saying that nothing is there"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """(n, 100, 6) float32: class (-1: none), left, top, right, bottom, logit."""
    said = np.full((len(outputs), EVALUATION_OPTIONS.most, BOX_FIELDS + 1), -1, dtype=np.float32)
    for row, boxes in zip(said, decode_boxes(outputs, _size(inputs)), strict=True):
        row[: len(boxes.logits)] = np.column_stack([boxes.classes, boxes.sides, boxes.logits])
    return said


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where the sure boxes are those of the labels."""
    found: np.ndarray = closeness(answers, y) == 1
    return found


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,): the share of the sure boxes and the labels of each picture that have their like in the other."""
    return np.array(
        [_shared(select_boxes(said), select_boxes(wanted[1:])) for said, wanted in zip(answers, y, strict=True)]
    )


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """The classes, each with its average precision, the sure boxes that are right, and the sure ones that are not."""
    found = []
    for kind, title in enumerate(names):
        labels = (y[:, 1:, 0] == kind).sum(axis=1)
        scores, hits, sure = [], [], []
        for said, wanted in zip(answers, y, strict=True):
            boxes = select_boxes(said[said[:, 0] == kind], -np.inf)
            there = wanted[1:][wanted[1:, 0] == kind]
            hit = match_boxes(boxes, there) & 1
            scores.append(boxes.logits)
            hits.append(hit)
            sure.append(boxes.logits >= MIN_LOGIT)
        logits, hit, is_sure = (np.concatenate(each) for each in (scores, hits, sure))
        precision = _average_precision(logits, hit > 0, np.ones((1, len(hit))), labels.sum()[None])
        total = int(labels.sum())
        score = float(precision[0]) if total else None
        found.append(Group(title, total, score, int((hit[is_sure] == 1).sum()), int((hit[is_sure] == 0).sum())))
    return found


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """How many of which class are surely there."""
    return [_counted(select_boxes(answer).classes, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """The same of the labels."""
    return [_counted(select_boxes(wanted[1:]).classes, names) for wanted in y]


def mean_average_precision(values: np.ndarray, weights: np.ndarray, bit: int = 0) -> np.ndarray:
    """(draws,) of marks (n, …) for weights (draws, n), at one of `OVERLAPS`; classes without a label do not count."""
    classes = values.shape[1] - FIELDS_PER_BOX * EVALUATION_OPTIONS.most
    boxes = values[:, classes:].reshape(len(values), EVALUATION_OPTIONS.most, FIELDS_PER_BOX)
    found = np.full((classes, len(weights)), np.nan)
    for kind in range(classes):
        picture, place = np.nonzero(boxes[..., 0] == kind)
        logits, bits = boxes[picture, place, 1], boxes[picture, place, 2].astype(np.int64)
        found[kind] = _average_precision(logits, (bits >> bit & 1) > 0, weights[:, picture], weights @ values[:, kind])
    there = np.isfinite(found)
    return np.where(there, found, 0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)


def _average_precision(logits: np.ndarray, hits: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """(draws,) of boxes (boxes,) with weights (draws, boxes), for `total` (draws,) labels; NaN where there is none.

    Precision made falling is highest where a box is right, so only those places are looked at.
    """
    order = (-logits).argsort(kind="stable")
    hits, weights = hits[order], weights[:, order]
    right_at = np.flatnonzero(hits)
    seen = np.cumsum(weights, axis=1)[:, right_at]
    right = np.cumsum(weights[:, right_at], axis=1)
    precision = right / np.maximum(seen, 1e-12)
    falling = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = right / np.maximum(total, 1e-12)[:, None]
    # one search in all draws: each has its own stretch of numbers, two apart
    apart = 2.0 * np.arange(len(weights))[:, None]
    places = np.searchsorted((recall + apart).ravel(), (RECALLS + apart).ravel()).reshape(len(weights), -1)
    places -= len(right_at) * np.arange(len(weights))[:, None]
    reached = np.take_along_axis(np.pad(falling, ((0, 0), (0, 1))), np.minimum(places, len(right_at)), axis=1)
    return np.where(total > 0, reached.mean(axis=1), np.nan)


def _hits(values: np.ndarray) -> np.ndarray:
    """(n,): how many labels of a picture are found at an overlap of a half."""
    bits = (
        values[:, -FIELDS_PER_BOX * EVALUATION_OPTIONS.most :]
        .reshape(len(values), EVALUATION_OPTIONS.most, FIELDS_PER_BOX)[..., 2]
        .astype(np.int64)
    )
    found: np.ndarray = (bits & 1).sum(axis=1)
    return found


def _size(inputs: np.ndarray | None) -> tuple[int, int]:
    assert inputs is not None, "the size of the pictures decides where the points lie"
    return int(inputs.shape[2]), int(inputs.shape[3])


def _sure(outputs: np.ndarray, inputs: np.ndarray | None) -> Iterator[Boxes]:
    return decode_boxes(outputs, _size(inputs), EVALUATION_OPTIONS._replace(least_probability=0.5))


def _shared(one: Boxes, other: Boxes) -> float:
    """The share of the boxes of both that have their like in the other: F1."""
    total = len(one.classes) + len(other.classes)
    labels = np.column_stack([other.classes, other.sides]) if len(other.classes) else np.zeros((0, BOX_FIELDS))
    return 2 * int((match_boxes(one, labels) & 1).sum()) / total if total else 1.0


def _counted(classes: np.ndarray, names: Sequence[str]) -> str:
    counts = [(int((classes == kind).sum()), title) for kind, title in enumerate(names)]
    return ", ".join(f"{count} {title}" for count, title in counts if count) or "nothing"
