"""Detect objects in pictures, each with a class and a box. Accuracy is the mean average precision at an overlap of 0.5.

Labels are (n, 1 + most, 5) float32, where `most` is the largest number of boxes that a picture may have. A row holds
class, left, top, right and bottom of a box, in pixels of the sample. The first row describes the sample itself, (-1, 0,
0, width, height); later rows with the class -1 are empty. Outputs are (n, points, 4 + classes), as described in
`edgekit/runner/boxes.py`.

Average precision is that of COCO (Lin et al., ECCV 2014). The boxes of all pictures are sorted by their scores, and
each is matched with the label of its class that it overlaps most and that no earlier box has taken. Precision is made
monotonically decreasing and averaged over 101 recalls. At most 100 boxes of each picture are taken into account.
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
CORRECT_WHEN = "every labelled object is found with a probability of one half or more, and nothing else"

RECALLS = np.linspace(0, 1, 101)
EVALUATION_OPTIONS = BoxOptions(least_probability=0.01, overlap=0.5, most=100)
MIN_SHARED_BOXES = 0.8
"""Two answers count as the same if at least this share of their boxes match."""
FIELDS_PER_BOX = 3
"""Number of fields of a predicted box in the sample scores: class, logit, and the bits of `match_boxes`.

The bits above those of `OVERLAPS` are set for the same overlaps if the box does not count, which keypoints use.
"""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for labels (n, 1 + most, 5): "0", "1", …"""
    highest = int(y[..., 0].max()) if y.ndim == 3 and y.size else 0
    return tuple(str(index) for index in range(max(1, highest + 1)))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return the labels as float32 (n, 1 + most, 5), after checking that every box has a known class and lies inside
    its sample."""
    if y.ndim != 3 or y.shape[1] < 2 or y.shape[2] != BOX_FIELDS:
        raise DataError(
            f"{name}: labels of a detection are (n, 1 + most, {BOX_FIELDS}), got {y.dtype} of shape {y.shape}"
        )
    table = y.astype(np.float32)
    width, height = table[:, :1, 3], table[:, :1, 4]
    kinds, sides = table[:, 1:, 0], table[:, 1:, 1:]
    is_box = kinds >= 0
    is_bad = is_box & ((kinds >= len(names)) | (kinds != np.floor(kinds)))
    is_bad |= is_box & ((sides < 0).any(axis=2) | (sides[..., 2] > width) | (sides[..., 3] > height))
    is_bad |= is_box & ((sides[..., 2] <= sides[..., 0]) | (sides[..., 3] <= sides[..., 1]))
    if is_bad.any() or not np.isfinite(table).all():
        sample, row = np.argwhere(is_bad)[0] if is_bad.any() else (int(np.argwhere(~np.isfinite(table))[0][0]), 0)
        raise DataError(
            f"{name}: box {row} of sample {sample} is {table[sample, 1 + row].tolist()}; a box is class (0 to "
            f"{len(names) - 1}), left, top, right, bottom, inside its {int(width[sample, 0])}×{int(height[sample, 0])} "
            "pixels"
        )
    return table


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that every class has a box in this split."""
    present = set(np.unique(y[:, 1:, 0]).astype(int).tolist())
    missing = [title for index, title in enumerate(names) if index not in present]
    if missing:
        raise DataError(
            f"{name}: no box of class {quote_names(missing)}; add pictures, raise data.limit, or remove the class"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the stratum of each picture, which is given by the rarest class in it; 0 if it has no box."""
    kinds = y[:, 1:, 0].astype(np.int64)
    classes = max(1, int(kinds.max()) + 1)
    has_class = np.stack([(kinds == kind).any(axis=1) for kind in range(classes)], axis=1)
    rarest_first = np.argsort(has_class.sum(axis=0), kind="stable")
    ranked = has_class[:, rarest_first]
    return np.where(ranked.any(axis=1), rarest_first[ranked.argmax(axis=1)] + 1, 0).astype(np.int64)


def decode_boxes(
    outputs: np.ndarray, size: tuple[int, int], options: BoxOptions = EVALUATION_OPTIONS
) -> Iterator[Boxes]:
    """Yield the boxes of each picture from outputs (n, points, 4 + classes). `size` is (height, width)."""
    decode = Decoder(size, outputs.shape[1], options)
    return (decode(each) for each in outputs)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return (n, classes + 3 · 100): the number of labels of each class, then `FIELDS_PER_BOX` values for each box."""
    classes = outputs.shape[2] - BOX_SIDES
    size = int(y[0, 0, 4]), int(y[0, 0, 3])
    values = np.zeros((len(y), classes + FIELDS_PER_BOX * EVALUATION_OPTIONS.most))
    values[:, classes::FIELDS_PER_BOX] = -1
    for row, boxes, labels in zip(values, decode_boxes(outputs, size), y, strict=True):
        labelled = labels[1:][labels[1:, 0] >= 0]
        row[:classes] = np.bincount(labelled[:, 0].astype(np.int64), minlength=classes)
        box_fields = row[classes:].reshape(EVALUATION_OPTIONS.most, FIELDS_PER_BOX)[: len(boxes.logits)]
        box_fields[:, 0], box_fields[:, 1], box_fields[:, 2] = boxes.classes, boxes.logits, match_boxes(boxes, labelled)
    return SampleScores("detection", values)


def accuracy(scores: SampleScores) -> float:
    """Return the mean average precision at an overlap of one half."""
    return float(mean_average_precision(scores.values, np.ones((1, len(scores))))[0])


def mean_accuracy_over_overlaps(scores: SampleScores) -> float:
    """Return the mean average precision, averaged over overlaps from 0.5 to 0.95. It is COCO's main metric."""
    weights = np.ones((1, len(scores)))
    return float(np.mean([mean_average_precision(scores.values, weights, bit)[0] for bit in range(len(OVERLAPS))]))


SECOND = SecondMetric("mAP@0.5:0.95", "averages it over overlaps from 0.5 to 0.95", mean_accuracy_over_overlaps)


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop, estimated by a bootstrap over pictures.

    A picture is lost if fewer of its labels are found, at an overlap of 0.5, than by the reference.
    """
    hits = [_hits(each.values) for each in (reference, scores)]
    worse = np.sign(hits[0] - hits[1])
    return bootstrap_drop(reference.values, scores.values, mean_average_precision, worse, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which samples have nearly the same confident boxes in both answers.

    Two boxes match if they are of the same class and overlap by one half.
    """
    pairs = zip(_confident_boxes(reference, inputs), _confident_boxes(outputs, inputs), strict=True)
    return np.array([_shared(*pair) >= MIN_SHARED_BOXES for pair in pairs])


def best_probability(outputs: np.ndarray, y: np.ndarray) -> float:
    """Return the threshold, in steps of 0.05, at which the F1 of all boxes at an overlap of one half is highest."""
    return best_threshold(score_samples(outputs, None, y).values)


def best_threshold(values: np.ndarray) -> float:
    """Return what `best_probability` does, for sample scores (n, …)."""
    classes = values.shape[1] - FIELDS_PER_BOX * EVALUATION_OPTIONS.most
    boxes = values[:, classes:].reshape(-1, FIELDS_PER_BOX)
    boxes = boxes[(boxes[:, 0] >= 0) & (boxes[:, 2].astype(np.int64) >> len(OVERLAPS) & 1 == 0)]
    labels = values[:, :classes].sum()
    probabilities = 1 / (1 + np.exp(-boxes[:, 1]))
    hits = boxes[:, 2].astype(np.int64) & 1
    steps = [round(0.05 * step, 2) for step in range(1, 20)]
    f1 = [2 * hits[probabilities >= step].sum() / max(1, (probabilities >= step).sum() + labels) for step in steps]
    return steps[int(np.argmax(f1))]


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of answers without boxes."""
    return 0.0, "always answering without a box"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the boxes, (n, 100, 6) float32: class (-1: no box), left, top, right, bottom, logit."""
    result = np.full((len(outputs), EVALUATION_OPTIONS.most, BOX_FIELDS + 1), -1, dtype=np.float32)
    for row, boxes in zip(result, decode_boxes(outputs, picture_size(inputs)), strict=True):
        row[: len(boxes.logits)] = np.column_stack([boxes.classes, boxes.sides, boxes.logits])
    return result


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which pictures the confident boxes match the labels one to one."""
    correct: np.ndarray = closeness(answers, y) == 1
    return correct


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return, for each picture, the F1 of its confident boxes and its labels, (n,)."""
    return np.array(
        [_shared(select_boxes(answer), select_boxes(label[1:])) for answer, label in zip(answers, y, strict=True)]
    )


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the classes, each with its average precision and the numbers of correct and wrong confident boxes."""
    result = []
    for kind, title in enumerate(names):
        labels = (y[:, 1:, 0] == kind).sum(axis=1)
        scores, hits, confident = [], [], []
        for answer, label in zip(answers, y, strict=True):
            boxes = select_boxes(answer[answer[:, 0] == kind], -np.inf)
            labelled = label[1:][label[1:, 0] == kind]
            hit = match_boxes(boxes, labelled) & 1
            scores.append(boxes.logits)
            hits.append(hit)
            confident.append(boxes.logits >= MIN_LOGIT)
        logits, hit, is_confident = (np.concatenate(each) for each in (scores, hits, confident))
        precision = average_precision(logits, hit > 0, np.ones((1, len(hit))), labels.sum()[None])
        total = int(labels.sum())
        score = float(precision[0]) if total else None
        result.append(
            Group(title, total, score, int((hit[is_confident] == 1).sum()), int((hit[is_confident] == 0).sum()))
        )
    return result


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of confident boxes of each class."""
    return [describe_counts(select_boxes(answer).classes, names) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return, as texts, the number of labels of each class."""
    return [describe_counts(select_boxes(label[1:]).classes, names) for label in y]


def mean_average_precision(values: np.ndarray, weights: np.ndarray, bit: int = 0) -> np.ndarray:
    """Return the metric, (draws,), of sample scores (n, …) with weights (draws, n), at the overlap `OVERLAPS[bit]`.

    Classes without a label do not count.
    """
    classes = values.shape[1] - FIELDS_PER_BOX * EVALUATION_OPTIONS.most
    boxes = values[:, classes:].reshape(len(values), EVALUATION_OPTIONS.most, FIELDS_PER_BOX)
    precisions = np.full((classes, len(weights)), np.nan)
    for kind in range(classes):
        pictures, positions = np.nonzero(boxes[..., 0] == kind)
        bits = boxes[pictures, positions, 2].astype(np.int64)
        counts = bits >> (bit + len(OVERLAPS)) & 1 == 0
        pictures, positions, bits = pictures[counts], positions[counts], bits[counts]
        logits = boxes[pictures, positions, 1]
        precisions[kind] = average_precision(
            logits, (bits >> bit & 1) > 0, weights[:, pictures], weights @ values[:, kind]
        )
    has_labels = np.isfinite(precisions)
    return np.where(has_labels, precisions, 0).sum(axis=0) / np.maximum(has_labels.sum(axis=0), 1)


def average_precision(logits: np.ndarray, hits: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the average precision, (draws,), of boxes with weights (draws, boxes) and `total` (draws,) labels.

    It is NaN without labels. Precision only rises at correct boxes, so only their positions are considered.
    """
    order = (-logits).argsort(kind="stable")
    hits, weights = hits[order], weights[:, order]
    hit_positions = np.flatnonzero(hits)
    counted = np.cumsum(weights, axis=1)[:, hit_positions]
    correct = np.cumsum(weights[:, hit_positions], axis=1)
    precision = correct / np.maximum(counted, 1e-12)
    monotonic = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = correct / np.maximum(total, 1e-12)[:, None]
    # one search serves all draws, because the offsets give the recalls of each draw a range of their own
    offsets = 2.0 * np.arange(len(weights))[:, None]
    places = np.searchsorted((recall + offsets).ravel(), (RECALLS + offsets).ravel()).reshape(len(weights), -1)
    places -= len(hit_positions) * np.arange(len(weights))[:, None]
    reached = np.take_along_axis(np.pad(monotonic, ((0, 0), (0, 1))), np.minimum(places, len(hit_positions)), axis=1)
    return np.where(total > 0, reached.mean(axis=1), np.nan)


def _hits(values: np.ndarray) -> np.ndarray:
    """Return how many labels of each picture are found at an overlap of one half, (n,)."""
    bits = (
        values[:, -FIELDS_PER_BOX * EVALUATION_OPTIONS.most :]
        .reshape(len(values), EVALUATION_OPTIONS.most, FIELDS_PER_BOX)[..., 2]
        .astype(np.int64)
    )
    counts: np.ndarray = (bits & 1).sum(axis=1)
    return counts


def picture_size(inputs: np.ndarray | None) -> tuple[int, int]:
    """Return the height and width of the pictures, from the network's inputs (n, channels, height, width)."""
    assert inputs is not None, "the size of the pictures decides where the points lie"
    return int(inputs.shape[2]), int(inputs.shape[3])


def _confident_boxes(outputs: np.ndarray, inputs: np.ndarray | None) -> Iterator[Boxes]:
    return decode_boxes(outputs, picture_size(inputs), EVALUATION_OPTIONS._replace(least_probability=0.5))


def _shared(one: Boxes, other: Boxes) -> float:
    """Return the F1 of two sets of boxes, which is the share of boxes that match a box of the other set."""
    total = len(one.classes) + len(other.classes)
    labels = np.column_stack([other.classes, other.sides]) if len(other.classes) else np.zeros((0, BOX_FIELDS))
    return 2 * int((match_boxes(one, labels) & 1).sum()) / total if total else 1.0


def describe_counts(classes: np.ndarray, names: Sequence[str]) -> str:
    """Return the number of objects of each class in words."""
    counts = [(int((classes == kind).sum()), title) for kind, title in enumerate(names)]
    return ", ".join(f"{count} {title}" for count, title in counts if count) or "nothing"
