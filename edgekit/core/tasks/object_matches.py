"""Match predicted objects with labelled ones, of which some do not count, and score them as COCO's own code does.

It serves the tasks in which objects are compared by more than their boxes. Labels that do not count, such as crowds,
are called ignored: what is matched with them is neither right nor wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from edgekit.core.tasks import Group
from edgekit.core.tasks.box_matches import MIN_LOGIT, OVERLAP_INDICES, OVERLAPS
from edgekit.core.tasks.detection import EVALUATION_OPTIONS, FIELDS_PER_BOX, average_precision
from edgekit.runner.boxes import Boxes

SIMILARITIES = np.minimum(np.array(OVERLAPS), 1 - 1e-10)
"""Similarities from which a prediction counts as correct, with the rounding of COCO's own code."""
Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes the indices of predicted and of labelled objects, and returns how similar each two are, (objects, labels)."""


def matched_labels(
    boxes: Boxes, kinds: np.ndarray, is_ignored: np.ndarray, is_crowd: np.ndarray, compare: Compare
) -> np.ndarray:
    """Match objects with labels greedily; return (objects, similarities) int64, the index of the label or -1.

    The most confident object is matched first, with the label of its class that is most similar. A label that counts
    comes before one that does not, and a crowd can be matched any number of times. `kinds` are the labels' classes.
    """
    matches = np.full((len(boxes.logits), len(SIMILARITIES)), -1, dtype=np.int64)
    for kind in np.unique(kinds).astype(np.int64):
        places, indices = np.flatnonzero(kinds == kind), np.flatnonzero(boxes.classes == kind)
        ignored, crowds = is_ignored[places], is_crowd[places]
        free = np.ones((len(SIMILARITIES), len(places)), dtype=bool)
        for index, row in zip(indices, compare(indices, places), strict=True):
            for counts in (~ignored, ignored):
                allowed = np.where((free | crowds) & counts, row, -1.0)
                best = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)  # the last of equal ones, as in COCO
                is_similar = allowed[OVERLAP_INDICES, best] >= SIMILARITIES
                found = np.flatnonzero(is_similar & (matches[index] < 0))
                free[found, best[found]] = False
                matches[index, found] = places[best[found]]
    return matches


def match_bits(matches: np.ndarray, is_ignored: np.ndarray) -> np.ndarray:
    """Return the bits (objects,) of `detection.FIELDS_PER_BOX` for the result of `matched_labels`."""
    ignored = np.append(is_ignored, False)[matches]
    weights = 1 << OVERLAP_INDICES
    bits: np.ndarray = ((matches >= 0) & ~ignored) @ weights + (ignored @ weights << len(OVERLAPS))
    return bits


def sample_values(classes: int, pictures: Sequence[tuple[Boxes, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return sample scores (n, classes + 3 · 100), as `detection.score_samples` does.

    Each picture has its predicted objects, their bits, and the classes of the labels that count.
    """
    values = np.zeros((len(pictures), classes + FIELDS_PER_BOX * EVALUATION_OPTIONS.most))
    values[:, classes::FIELDS_PER_BOX] = -1
    for row, (boxes, bits, kinds) in zip(values, pictures, strict=True):
        row[:classes] = np.bincount(kinds.astype(np.int64), minlength=classes)
        fields = row[classes:].reshape(EVALUATION_OPTIONS.most, FIELDS_PER_BOX)[: len(bits)]
        fields[:, 0], fields[:, 1], fields[:, 2] = boxes.classes, boxes.logits, bits
    return values


def class_group(title: str, pictures: Iterable[tuple[Boxes, np.ndarray, int]]) -> Group:
    """Return the average precision of a class, and the numbers of its correct and wrong confident objects.

    Each picture has its predicted objects of the class, their bits, and the number of labels that count.
    """
    objects, bit_fields, labels = zip(*pictures, strict=True)
    logits = np.concatenate([each.logits for each in objects])
    bits, total = np.concatenate(bit_fields).astype(np.int64), sum(labels)
    counts = bits >> len(OVERLAPS) & 1 == 0
    logits, is_hit = logits[counts], bits[counts] & 1 > 0
    precision = average_precision(logits, is_hit, np.ones((1, len(is_hit))), np.array([total]))
    confident = is_hit[logits >= MIN_LOGIT]
    score = float(precision[0]) if total else None
    return Group(title, total, score, int(confident.sum()), int((~confident).sum()))


def f1(bits: np.ndarray, labels: int) -> float:
    """Return the F1 of objects with these bits at a similarity of one half, and of the labels that count."""
    hits, ignored = int((bits & 1).sum()), int((bits >> len(OVERLAPS) & 1).sum())
    total = len(bits) - ignored + labels
    return 2 * hits / total if total else 1.0
