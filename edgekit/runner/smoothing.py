"""Smoothing of answers over time, declared in a bundle under `smoothing`: majority, mean or hysteresis.

Only streams are smoothed, never single files. A method takes the bundle's options and its manifest, and returns a
function that keeps state from earlier windows, so each stream gets its own. Windows that were dropped or refused do not
count. Sums are taken over Python floats in the order of time, so that they are the same everywhere.
`bundle/smoothing_rules.py` defines what may be declared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.runner.postprocess import classification, multi_label

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

Smoother = Callable[[Any], Any]


def make_smoother(manifest: Manifest) -> Smoother | None:
    """Return the function for a new stream that turns a window's answer into the smoothed answer, or None.

    The smoothed answer has the same type. None means that the bundle declares no smoothing.
    """
    if manifest.smoothing is None:
        return None
    return METHODS[manifest.smoothing["method"]](manifest.smoothing, manifest)


def to_json_dict(smoothed: Any) -> dict[str, Any]:
    """Return a smoothed answer for JSON, without the fields that the window's own answer already has."""
    fields: dict[str, Any] = smoothed.to_dict()
    return {key: value for key, value in fields.items() if key not in ("scores", "timing_ms")}


def majority(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """Smooth by a majority vote among the last `windows` windows. Probabilities are fractions of the votes.

    A classification returns the class with most votes; in a tie, the one predicted last. For multi-label and anomaly
    tasks, a label needs more than half of the votes.
    """
    recent: deque[list[int]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        recent.append(label_indices(answer, manifest))
        votes = [sum(index in each for each in recent) for index in range(len(manifest.labels))]
        if manifest.task == "anomaly":
            return with_values(
                answer, manifest, answer_values(answer, manifest), [1] if 2 * votes[1] > len(recent) else []
            )
        fractions = [count / len(recent) for count in votes]
        if manifest.task == "classification":
            most = max(votes)
            return with_values(
                answer, manifest, fractions, [next(each[0] for each in reversed(recent) if votes[each[0]] == most)]
            )
        winners = [index for index, count in enumerate(votes) if 2 * count > len(recent)]
        return with_values(answer, manifest, fractions, sorted(winners, key=lambda index: -votes[index]))

    return smooth


def mean(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """Smooth by the mean of probabilities, values or scores over the last `windows` windows.

    The task's own rule then derives the labels.
    """
    recent: deque[list[float]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        recent.append(answer_values(answer, manifest))
        return with_values(answer, manifest, [_mean(column) for column in zip(*recent)])

    return smooth


def _mean(values: Sequence[float]) -> float:
    """Return the mean, adding one by one: Python's own `sum` rounds differently from version 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def hysteresis(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """Smooth with a Schmitt trigger: a high limit to enter a label, and a lower one to leave it.

    Limits are probabilities, or multiples of the threshold for anomaly detection. A classification keeps its class
    until another one reaches `enter`, or its own falls below `leave`; then the window's class is taken. Multi-label and
    anomaly labels start at `enter` and last until they fall below `leave`.
    """
    enter, leave = options["enter"], options["leave"]
    current: list[int] = []

    def smooth(answer: Any) -> Any:
        nonlocal current
        values = answer_values(answer, manifest)
        if manifest.task == "anomaly":
            current = [1] if values[0] > (leave if current else enter) * answer.threshold else []
        elif manifest.task == "classification":
            best = answer.index
            if not current or values[current[0]] < leave or values[best] >= enter:
                current = [best]
        else:
            active = [index for index, value in enumerate(values) if value >= (leave if index in current else enter)]
            current = sorted(active, key=lambda index: -values[index])
        return with_values(answer, manifest, values, current)

    return smooth


METHODS: dict[str, Callable[[Mapping[str, Any], Manifest], Smoother]] = {
    "majority": majority,
    "mean": mean,
    "hysteresis": hysteresis,
}


def answer_values(answer: Any, manifest: Manifest) -> list[float]:
    """Return the probability of each label, the values of a regression, or the score of an anomaly detection."""
    if manifest.task == "classification":
        scores = answer.scores
        if manifest.activation == "softmax":
            return classification.probabilities(scores)
        values: list[float] = scores.tolist()
        return values
    if manifest.task == "anomaly":
        return [answer.score]
    named = answer.probabilities if manifest.task == "multi_label" else answer.values
    return [named[label] for label in manifest.labels]


def label_indices(answer: Any, manifest: Manifest) -> list[int]:
    """Return the indices of the labels in an answer. For an anomaly detection, 1 stands for an anomaly."""
    if manifest.task == "classification":
        return [answer.index]
    if manifest.task == "anomaly":
        return [1] if answer.is_anomaly else []
    return [manifest.labels.index(label) for label in answer.labels]


def with_values(answer: Any, manifest: Manifest, values: Sequence[float], chosen: Sequence[int] | None = None) -> Any:
    """Return the answer with other values and the given label indices.

    By default the labels are those that the task's own rule derives from the values.
    """
    labels = manifest.labels
    if manifest.task == "regression":
        return replace(answer, values=dict(zip(labels, values)))
    if manifest.task == "anomaly":
        is_anomaly = values[0] > answer.threshold if chosen is None else bool(chosen)
        return replace(answer, is_anomaly=is_anomaly, score=values[0], label=labels[is_anomaly])
    preferred = () if chosen is None else chosen
    ranked = sorted(range(len(values)), key=lambda index: (-values[index], index not in preferred))
    if manifest.task == "classification":
        best = ranked[0] if chosen is None else chosen[0]
        top = [(labels[index], values[index]) for index in ranked[: len(answer.top)]]
        return replace(answer, label=labels[best], index=best, top=top)
    present = [index for index in ranked if values[index] >= multi_label.MIN_PROBABILITY] if chosen is None else chosen
    return replace(answer, labels=[labels[index] for index in present], probabilities=dict(zip(labels, values)))
