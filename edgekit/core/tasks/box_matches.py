"""Match predicted boxes with labelled ones greedily, the most confident box first, as COCO's own code does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgekit.runner.boxes import Boxes, area, intersections

OVERLAPS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Overlaps from which a box counts as correct. An overlap is the intersection divided by the union."""
OVERLAP_LIMITS, OVERLAP_INDICES = np.array(OVERLAPS), np.arange(len(OVERLAPS))
MIN_LOGIT = 0.0
"""Logit of a probability of one half."""
BOX_FIELDS = 5
"""The number of values of a box: class, left, top, right, bottom."""


class BoxComparison(NamedTuple):
    """The confident boxes of a picture and its labels.

    `is_correct` (boxes,) says which boxes match a label, and `is_found` (labels,) which labels are matched.
    """

    boxes: Boxes
    is_correct: np.ndarray
    labels: Boxes
    is_found: np.ndarray


def compare_boxes(answer: np.ndarray, label: np.ndarray) -> BoxComparison:
    """Compare an answer (100, 6) with the label (1 + most, 5) of its picture at an overlap of one half.

    `edgekit.core.tasks.detection` describes both arrays.
    """
    boxes, labels = select_boxes(answer), select_boxes(label[1:])
    is_correct, is_found = np.zeros(len(boxes.classes), bool), np.zeros(len(labels.classes), bool)
    shares = pairwise_overlaps(boxes.sides, labels.sides)
    for place, kind in enumerate(boxes.classes):
        free = np.where((labels.classes == kind) & ~is_found, shares[place], -1.0)
        best = len(free) - 1 - int(free[::-1].argmax()) if len(free) else -1
        if best >= 0 and free[best] >= OVERLAP_LIMITS[0]:
            is_correct[place] = is_found[best] = True
    return BoxComparison(boxes, is_correct, labels, is_found)


def match_boxes(boxes: Boxes, labels: np.ndarray) -> np.ndarray:
    """Return (boxes,) int64, in which bit `k` is set if the box matches a label of its class at `OVERLAPS[k]`.

    `boxes` are sorted by confidence, the most confident first.
    """
    bits = np.zeros(len(boxes.logits), dtype=np.int64)
    for kind in np.unique(labels[:, 0]).astype(np.int64):
        box_indices = np.flatnonzero(boxes.classes == kind)
        overlaps = pairwise_overlaps(boxes.sides[box_indices], labels[labels[:, 0] == kind, 1:])
        free = np.ones((len(OVERLAP_LIMITS), overlaps.shape[1]), dtype=bool)
        for place in np.flatnonzero(overlaps.max(axis=1, initial=0) >= OVERLAP_LIMITS[0]):
            shares = np.where(free, overlaps[place], -1.0)
            best = free.shape[1] - 1 - shares[:, ::-1].argmax(axis=1)  # the last of equal ones, as in COCO's own code
            matched_limits = np.flatnonzero(shares[OVERLAP_INDICES, best] >= OVERLAP_LIMITS)
            free[matched_limits, best[matched_limits]] = False
            bits[box_indices[place]] = (1 << matched_limits).sum()
    return bits


def pairwise_overlaps(boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return (boxes, labels) float64: the intersection of each box and label divided by their union."""
    boxes, labels = boxes.astype(np.float64), labels.astype(np.float64)
    shared = intersections(boxes.T, labels.T)
    union = area(boxes)[:, None] + area(labels) - shared
    shares: np.ndarray = shared / np.maximum(union, 1e-12)
    return shares


def select_boxes(rows: np.ndarray, min_logit: float = MIN_LOGIT) -> Boxes:
    """Return the boxes in rows (n, 5) of labels, or in rows (n, 6) of answers with at least `min_logit` as logit."""
    logits = rows[:, BOX_FIELDS] if rows.shape[1] > BOX_FIELDS else np.full(len(rows), np.inf)
    selected = rows[(rows[:, 0] >= 0) & (logits >= min_logit)]
    return Boxes(
        selected[:, 1:BOX_FIELDS],
        selected[:, BOX_FIELDS] if rows.shape[1] > BOX_FIELDS else selected[:, 0],
        selected[:, 0].astype(np.int64),
    )
