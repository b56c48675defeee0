"""A class out of several, with its probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Classification:
    """A class. `scores` are the model's own (classes,) float32; `top` holds (label, probability), best first."""

    label: str
    index: int
    top: list[tuple[str, float]]
    scores: np.ndarray
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "scores": self.scores.tolist()}

    def lines(self) -> list[str]:
        """For people; the first line ends the one that names the input."""
        return [self.label, *(f"  {probability:7.2%}  {label}" for label, probability in self.top)]


def maker(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Classification]:
    """See the package."""
    labels, is_logits = manifest.labels, manifest.activation == "softmax"

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Classification:
        probabilities = softmax(scores) if is_logits else scores
        best = (-scores).argsort(kind="stable")[:top_k]
        top = [(labels[index], share) for index, share in zip(best.tolist(), probabilities[best].tolist())]
        return Classification(top[0][0], int(best[0]), top, scores, timing_ms)

    return answer


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities (classes,) of scores (classes,), stable for large ones."""
    shifted = scores - np.maximum.reduce(scores)
    np.exp(shifted, out=shifted)
    shifted /= np.add.reduce(shifted)
    return shifted
