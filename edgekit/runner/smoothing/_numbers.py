"""Answers of every task as lists of numbers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.runner.postprocess import classification, multi_label

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def numbers(answer: Any, manifest: Manifest) -> list[float]:
    """A probability for each label, a regression's values, or the score of an anomaly detection."""
    if manifest.task == "classification":
        scores = answer.scores
        if manifest.activation == "softmax":
            return classification.probabilities(scores)
        found: list[float] = scores.tolist()
        return found
    if manifest.task == "anomaly":
        return [answer.score]
    named = answer.probabilities if manifest.task == "multi_label" else answer.values
    return [named[label] for label in manifest.labels]


def said(answer: Any, manifest: Manifest) -> list[int]:
    """The places of the labels that an answer says, of an anomaly detection 1 for an anomaly."""
    if manifest.task == "classification":
        return [answer.index]
    if manifest.task == "anomaly":
        return [1] if answer.is_anomaly else []
    return [manifest.labels.index(label) for label in answer.labels]


def restated(answer: Any, manifest: Manifest, values: Sequence[float], says: Sequence[int] | None = None) -> Any:
    """The answer with other numbers, saying these labels; None: those that the numbers say by the task's own rule."""
    labels = manifest.labels
    if manifest.task == "regression":
        return replace(answer, values=dict(zip(labels, values)))
    if manifest.task == "anomaly":
        is_anomaly = values[0] > answer.threshold if says is None else bool(says)
        return replace(answer, is_anomaly=is_anomaly, score=values[0], label=labels[is_anomaly])
    first = () if says is None else says
    ranked = sorted(range(len(values)), key=lambda place: (-values[place], place not in first))
    if manifest.task == "classification":
        best = ranked[0] if says is None else says[0]
        top = [(labels[place], values[place]) for place in ranked[: len(answer.top)]]
        return replace(answer, label=labels[best], index=best, top=top)
    found = [place for place in ranked if values[place] >= multi_label.LEAST] if says is None else says
    return replace(answer, labels=[labels[place] for place in found], probabilities=dict(zip(labels, values)))
