"""A class out of several, with its probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, fsum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

SMALL_ARRAY = 32
"""Numbers up to which Python's own arithmetic takes less time than a call of numpy."""


@dataclass(frozen=True, init=False)
class Classification:
    """A class. `scores` are the model's own (classes,) float32; `top` holds (label, probability), best first."""

    label: str
    index: int
    top: list[tuple[str, float]]
    scores: np.ndarray
    timing_ms: dict[str, float]

    def __init__(
        self, label: str, index: int, top: list[tuple[str, float]], scores: np.ndarray, timing_ms: dict[str, float]
    ) -> None:
        """In a third of the time of a frozen dataclass's own, which sets each field by a call."""
        fields = self.__dict__
        fields["label"], fields["index"], fields["top"] = label, index, top
        fields["scores"], fields["timing_ms"] = scores, timing_ms

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "scores": self.scores.tolist()}

    def lines(self) -> list[str]:
        """For people; the first line ends the one that names the input."""
        return [self.label, *(f"  {probability:7.2%}  {label}" for label, probability in self.top)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Classification]:
    """See the package."""
    labels, is_logits = manifest.labels, manifest.activation == "softmax"
    if len(labels) <= SMALL_ARRAY:
        return _make_small_postprocessor(labels, is_logits)

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Classification:
        probabilities = softmax(scores) if is_logits else scores
        best = (-scores).argsort(kind="stable")[:top_k]
        top = [(labels[index], share) for index, share in zip(best.tolist(), probabilities[best].tolist())]
        return Classification(top[0][0], int(best[0]), top, scores, timing_ms)

    return answer


def _make_small_postprocessor(
    labels: list[str], is_logits: bool
) -> Callable[[np.ndarray, int, dict[str, float]], Classification]:
    """The same in Python's doubles: of ten classes in less than half the time, for each call of numpy costs as much."""
    places = range(len(labels))

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Classification:
        values = scores.tolist()
        best = sorted(places, key=values.__getitem__, reverse=True)[:top_k]  # stable: the first of equal ones leads
        first = best[0]
        if is_logits:
            highest = values[first]
            parts = [exp(value - highest) for value in values]
            whole = fsum(parts)
            top = [(labels[index], parts[index] / whole) for index in best]
        else:
            top = [(labels[index], values[index]) for index in best]
        return Classification(labels[first], first, top, scores, timing_ms)

    return answer


def probabilities(scores: np.ndarray) -> list[float]:
    """Of each class, as an answer has them, of scores (classes,) that are logits."""
    if len(scores) > SMALL_ARRAY:
        found: list[float] = softmax(scores).tolist()
        return found
    values = scores.tolist()
    highest = max(values)
    parts = [exp(value - highest) for value in values]
    whole = fsum(parts)
    return [part / whole for part in parts]


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities (classes,) of scores (classes,), stable for large ones."""
    shifted = scores - np.maximum.reduce(scores)
    np.exp(shifted, out=shifted)
    shifted /= np.add.reduce(shifted)
    return shifted
