"""How many of a bundle's answers are right, for each task: a share from 0 to 1.

`answers` are what `edgerun predict --json` said, in the order of the files; `truths` are those of `cases.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgekit.core.tasks import Task
from tests.data import masked

Answer = dict[str, Any]
FAR = 0.75
"""A value of unit spread is wrong at this distance."""
OVERLAP = 0.5


def classes(answers: list[Answer], truths: list[Any]) -> float:
    """A class for each file; or `(begin, end, class)` in seconds, which the windows within are held to."""
    if not isinstance(truths[0], tuple):
        return _share(answer["label"] == truth for answer, truth in zip(answers, truths, strict=True))
    return _share(
        answer["label"] == label
        for begin, end, label in truths
        for answer in answers
        if begin <= answer["window"]["start_s"] and answer["window"]["end_s"] <= end
    )


def values(answers: list[Answer], truths: list[float]) -> float:
    """Near enough."""
    found = [next(iter(answer["values"].values())) for answer in answers]
    return _share(abs(one - truth) < FAR for one, truth in zip(found, truths, strict=True))


def labels(answers: list[Answer], truths: list[list[str]]) -> float:
    """Each label of each sample, there or not."""
    return _share(
        (label in answer["labels"]) == (label in truth)
        for answer, truth in zip(answers, truths, strict=True)
        for label in answer["probabilities"]
    )


def anomalies(answers: list[Answer], truths: list[bool]) -> float:
    """Pairs of a normal file and another in which the other has the higher score: the area under the ROC curve."""
    assert all(answer["is_anomaly"] == (answer["score"] > answer["threshold"]) for answer in answers)
    normal, other = (
        [answer["score"] for answer, truth in zip(answers, truths, strict=True) if truth == is_anomaly]
        for is_anomaly in (False, True)
    )
    return _share(low < high for low in normal for high in other)


def neighbours(answers: list[Answer], truths: list[str]) -> float:
    """The nearest of the others is of the same class."""
    vectors = np.array([answer["embedding"] for answer in answers])
    alike = vectors @ vectors.T - 2 * np.eye(len(vectors))
    return _share(truths[near] == truth for near, truth in zip(alike.argmax(axis=1), truths, strict=True))


def boxes(answers: list[Answer], truths: list[list[tuple[str, int, int, int, int]]]) -> float:
    """Things that a box of their class overlaps by half."""
    return _share(
        any(box["label"] == kind and _overlap(box["box"], place) >= OVERLAP for box in answer["boxes"])
        for answer, things in zip(answers, truths, strict=True)
        for kind, *place in things
    )


def masks(answers: list[Answer], truths: list[np.ndarray]) -> float:
    """Pixels of shapes, whose truth is another class than the first, that are in the mask of their class."""
    return _share(
        right
        for answer, truth in zip(answers, truths, strict=True)
        for kind, name in list(enumerate(masked.CLASSES))[1:]
        for right in _pixels(answer["masks"], name, truth.shape)[truth == kind]
    )


RIGHT: dict[Task, Callable[[list[Answer], list[Any]], float]] = {
    "classification": classes,
    "regression": values,
    "multi_label": labels,
    "anomaly": anomalies,
    "embedding": neighbours,
    "detection": boxes,
    "segmentation": masks,
}


def _share(checks: Any) -> float:
    """Of those that hold; nothing to hold is an error, not a success."""
    held = [bool(one) for one in checks]
    assert held
    return sum(held) / len(held)


def _overlap(one: list[float], other: list[float]) -> float:
    """Intersection over union of two boxes left, top, right, bottom."""
    corners = np.array([one, other])
    inside = np.prod(np.maximum(corners[:, 2:].min(axis=0) - corners[:, :2].max(axis=0), 0))
    return float(inside / (np.prod(corners[:, 2:] - corners[:, :2], axis=1).sum() - inside))


def _pixels(answers: list[dict[str, Any]], label: str, shape: tuple[int, ...]) -> np.ndarray:
    """(height, width) of whether a pixel is in the mask of a label, of its run lengths down the columns."""
    counts = next((each["counts"] for each in answers if each["label"] == label), [])
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return np.pad(flat, (0, int(np.prod(shape)) - len(flat))).reshape(shape, order="F")
