"""Scores → answer: what the runner makes of the outputs, held against the labels of the samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ConversionError

SUM_TOLERANCE = 1e-3
LEAST_SAMPLES = 20
LEAST_GAIN, LEAST_ACCURACY, STANDARD_ERRORS = 0.15, 0.5, 3.0
"""What another order of the labels must gain, reach, and exceed chance by, before the labels are called wrong."""


def check(
    outputs: np.ndarray,
    labels: np.ndarray,
    classes: tuple[str, ...],
    task: str = "classification",
    inputs: np.ndarray | None = None,
    *,
    softmax_inside: bool = False,
) -> dict[str, Any]:
    """A row of figures; ConversionError for outputs that are no logits, or for classes out of order.

    `softmax_inside`: the model came as a file that gives probabilities, and the runner leaves them as they are.
    """
    if task == "classification":
        return _of_classes(outputs, labels, classes, softmax_inside)
    if task == "multi_label" and len(outputs) and outputs.min() >= 0 and outputs.max() <= 1:
        raise ConversionError(
            "scores → answer: double sigmoid: the network's outputs lie between 0 and 1 already, and training and the "
            "runner apply a sigmoid to them again; let the network end in logits"
        )
    kind = tasks.named(task)
    found = tasks.accuracy(kind.score_samples(outputs, inputs, labels)) if _both(task, labels) else None
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": found, "metric": kind.METRIC}


def _both(task: str, labels: np.ndarray) -> bool:
    """Whether these few samples can be judged: of anomalies there may be none among them."""
    return task != "anomaly" or 0 < labels.sum() < len(labels)


def _of_classes(
    scores: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], softmax_inside: bool
) -> dict[str, Any]:
    what = "scores → answer"
    if len(scores) and not softmax_inside and are_probabilities(scores):
        raise ConversionError(
            f"{what}: double softmax: the network's outputs are probabilities already (each row adds up to 1), and "
            "training and the runner apply softmax to them again; let the network end in logits"
        )
    order, reached = best_order(scores, labels)
    accuracy = float(np.mean(scores.argmax(axis=1) == labels)) if len(labels) else 0.0
    gain = reached - accuracy
    sure = gain * math.sqrt(max(1, len(labels))) >= STANDARD_ERRORS and len(labels) >= LEAST_SAMPLES
    if gain >= LEAST_GAIN and reached >= LEAST_ACCURACY and sure:
        raise ConversionError(
            f"{what}: the labels are in another order than the network's outputs: {_order(order, classes)}; "
            f"so ordered {100 * reached:.0f} % of {len(labels)} validation samples are right, as they stand "
            f"{100 * accuracy:.0f} %; give the classes in the order that the weights were trained with"
        )
    return {"from": "scores", "to": "answer", "samples": len(labels), "accuracy": accuracy, "best_order": reached}


def are_probabilities(scores: np.ndarray) -> bool:
    """Whether every row (classes,) lies in [0, 1] and adds up to one."""
    inside = scores.min() >= 0 and scores.max() <= 1 + SUM_TOLERANCE
    return bool(inside and np.allclose(scores.sum(axis=1), 1, atol=SUM_TOLERANCE))


def best_order(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """The class that most samples of each output have, (classes,), and the share that is right if it means that class.

    As it stands where two outputs would mean the same class: then it is no other order.
    """
    count = scores.shape[1]
    identity = np.arange(count)
    confusion = np.zeros((count, count))
    np.add.at(confusion, (scores.argmax(axis=1), labels), 1)
    meant = (confusion + 0.5 * np.eye(count)).argmax(axis=1)
    if len(np.unique(meant)) < count:
        meant = identity
    return meant, float(confusion[identity, meant].sum() / max(1, len(labels)))


def _order(order: np.ndarray, classes: tuple[str, ...]) -> str:
    count = len(order)
    for shift in (1, count - 1):
        if np.array_equal(order, (np.arange(count) + shift) % count):
            return f"every index is off by {'one' if shift == 1 else 'minus one'}"
    moved = [f"output {place} means {classes[meant]!r}" for place, meant in enumerate(order) if place != meant]
    return ", ".join(moved[:4]) + (", …" if len(moved) > 4 else "")
