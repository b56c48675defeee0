"""Which found boxes are which labelled ones: greedy, the surest box first, as COCO's own code has it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgekit.runner.boxes import Boxes, area, intersections

OVERLAPS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""An overlap is the intersection's share of the union."""
OVERLAP_LIMITS, OVERLAP_INDICES = np.array(OVERLAPS), np.arange(len(OVERLAPS))
MIN_LOGIT = 0.0
"""A logit: the probability of a half."""
BOX_FIELDS = 5
"""Numbers of a label or a found box: class, left, top, right, bottom."""


class BoxComparison(NamedTuple):
    """The sure boxes of a picture and its labels: `right` (boxes,) where one takes a label, `found` (labels,) which."""

    boxes: Boxes
    right: np.ndarray
    labels: Boxes
    found: np.ndarray


def compare_boxes(answer: np.ndarray, wanted: np.ndarray) -> BoxComparison:
    """An answer (100, 6) beside the rows (1 + most, 5) of its picture's label, at an overlap of a half."""
    boxes, labels = select_boxes(answer), select_boxes(wanted[1:])
    right, found = np.zeros(len(boxes.classes), bool), np.zeros(len(labels.classes), bool)
    shares = pairwise_overlaps(boxes.sides, labels.sides)
    for place, kind in enumerate(boxes.classes):
        free = np.where((labels.classes == kind) & ~found, shares[place], -1.0)
        best = len(free) - 1 - int(free[::-1].argmax()) if len(free) else -1
        if best >= 0 and free[best] >= OVERLAP_LIMITS[0]:
            right[place] = found[best] = True
    return BoxComparison(boxes, right, labels, found)


def match_boxes(boxes: Boxes, labels: np.ndarray) -> np.ndarray:
    """(boxes,) int64: bit `k` is set where a box, best first, takes a label of its class at `OVERLAPS[k]`."""
    bits = np.zeros(len(boxes.logits), dtype=np.int64)
    for kind in np.unique(labels[:, 0]).astype(np.int64):
        mine = np.flatnonzero(boxes.classes == kind)
        overlaps = pairwise_overlaps(boxes.sides[mine], labels[labels[:, 0] == kind, 1:])
        free = np.ones((len(OVERLAP_LIMITS), overlaps.shape[1]), dtype=bool)
        for place in np.flatnonzero(overlaps.max(axis=1, initial=0) >= OVERLAP_LIMITS[0]):
            shares = np.where(free, overlaps[place], -1.0)
            best = free.shape[1] - 1 - shares[:, ::-1].argmax(axis=1)  # of equals the last, as COCO's own code
            taken = np.flatnonzero(shares[OVERLAP_INDICES, best] >= OVERLAP_LIMITS)
            free[taken, best[taken]] = False
            bits[mine[place]] = (1 << taken).sum()
    return bits


def pairwise_overlaps(boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(boxes, labels) float64: the intersection's share of the union."""
    boxes, labels = boxes.astype(np.float64), labels.astype(np.float64)
    shared = intersections(boxes.T, labels.T)
    union = area(boxes)[:, None] + area(labels) - shared
    found: np.ndarray = shared / np.maximum(union, 1e-12)
    return found


def select_boxes(rows: np.ndarray, least: float = MIN_LOGIT) -> Boxes:
    """Of rows (n, 5 or 6): labels, or answers with a logit that is at least `least`."""
    logits = rows[:, BOX_FIELDS] if rows.shape[1] > BOX_FIELDS else np.full(len(rows), np.inf)
    kept = rows[(rows[:, 0] >= 0) & (logits >= least)]
    return Boxes(
        kept[:, 1:BOX_FIELDS],
        kept[:, BOX_FIELDS] if rows.shape[1] > BOX_FIELDS else kept[:, 0],
        kept[:, 0].astype(np.int64),
    )
