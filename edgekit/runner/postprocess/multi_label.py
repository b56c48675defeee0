"""Any number of labels at once, each with its probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

MIN_PROBABILITY = 0.5
"""Probability from which a label is said."""


@dataclass(frozen=True)
class MultiLabel:
    """The labels that are said, most probable first, and the probability of each one there is."""

    labels: list[str]
    probabilities: dict[str, float]
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """For people; the first line ends the one that names the input."""
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        return [", ".join(self.labels) or "none", *(f"  {share:7.2%}  {label}" for label, share in ranked)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], MultiLabel]:
    """See the package; the number of labels wanted has no meaning here."""
    names, is_logits = manifest.labels, manifest.activation == "sigmoid"

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> MultiLabel:
        shares = sigmoid(scores) if is_logits else scores
        said = [index for index in (-shares).argsort(kind="stable").tolist() if shares[index] >= MIN_PROBABILITY]
        return MultiLabel([names[index] for index in said], dict(zip(names, shares.tolist())), timing_ms)

    return answer


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Probabilities of scores, each for itself, stable for large ones."""
    small = np.exp(-np.abs(scores))
    found: np.ndarray = np.where(scores >= 0, 1 / (1 + small), small / (1 + small))
    return found
