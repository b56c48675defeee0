"""Classification: one class out of several, with its probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, fsum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

SMALL_ARRAY = 32
"""Up to this size, a Python loop is faster than a NumPy call."""


@dataclass(frozen=True, init=False)
class Classification:
    """The predicted class.

    `scores` are the model's own outputs (classes,) float32. `top` holds (label, probability), most probable first.
    """

    label: str
    index: int
    top: list[tuple[str, float]]
    scores: np.ndarray
    timing_ms: dict[str, float]

    def __init__(
        self, label: str, index: int, top: list[tuple[str, float]], scores: np.ndarray, timing_ms: dict[str, float]
    ) -> None:
        """Set the fields in a third of the time of a frozen dataclass's own method, which calls a function for each."""
        fields = self.__dict__
        fields["label"], fields["index"], fields["top"] = label, index, top
        fields["scores"], fields["timing_ms"] = scores, timing_ms

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        return {**vars(self), "scores": self.scores.tolist()}

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        return [self.label, *(f"  {probability:7.2%}  {label}" for label, probability in self.top)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Classification]:
    """See `edgekit.runner.postprocess`."""
    labels, is_logits = manifest.labels, manifest.activation == "softmax"
    if len(labels) <= SMALL_ARRAY:
        return _make_small_postprocessor(labels, is_logits)

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Classification:
        probabilities = softmax(scores) if is_logits else scores
        best = (-scores).argsort(kind="stable")[:top_k]
        top = [(labels[index], probability) for index, probability in zip(best.tolist(), probabilities[best].tolist())]
        return Classification(top[0][0], int(best[0]), top, scores, timing_ms)

    return answer


def _make_small_postprocessor(
    labels: list[str], is_logits: bool
) -> Callable[[np.ndarray, int, dict[str, float]], Classification]:
    """Return the postprocessor in Python floats, which takes less than half the time for ten classes.

    Each NumPy call has a fixed cost, which dominates for so few numbers.
    """
    indices = range(len(labels))

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Classification:
        values = scores.tolist()
        best = sorted(indices, key=values.__getitem__, reverse=True)[
            :top_k
        ]  # stable: among equal values the first class comes first
        first = best[0]
        if is_logits:
            highest = values[first]
            parts = [exp(value - highest) for value in values]
            total = fsum(parts)
            top = [(labels[index], parts[index] / total) for index in best]
        else:
            top = [(labels[index], values[index]) for index in best]
        return Classification(labels[first], first, top, scores, timing_ms)

    return answer


def probabilities(scores: np.ndarray) -> list[float]:
    """Return the probability of each class for scores (classes,) that are logits, as answers contain them."""
    if len(scores) > SMALL_ARRAY:
        values: list[float] = softmax(scores).tolist()
        return values
    values = scores.tolist()
    highest = max(values)
    parts = [exp(value - highest) for value in values]
    total = fsum(parts)
    return [part / total for part in parts]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax (classes,) of scores (classes,), numerically stable for large ones."""
    shifted = scores - np.maximum.reduce(scores)
    np.exp(shifted, out=shifted)
    shifted /= np.add.reduce(shifted)
    return shifted
