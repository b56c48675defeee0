"""Multi-label classification: any number of labels, each with its own probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

MIN_PROBABILITY = 0.5
"""Probability from which a label counts as present."""


@dataclass(frozen=True)
class MultiLabel:
    """The labels that are present, most probable first, and the probability of every label."""

    labels: list[str]
    probabilities: dict[str, float]
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        return [", ".join(self.labels) or "none", *(f"  {probability:7.2%}  {label}" for label, probability in ranked)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], MultiLabel]:
    """See `edgekit.runner.postprocess`. `top_k` is ignored."""
    names, is_logits = manifest.labels, manifest.activation == "sigmoid"

    def answer(scores: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> MultiLabel:
        probabilities = sigmoid(scores) if is_logits else scores
        present = [
            index
            for index in (-probabilities).argsort(kind="stable").tolist()
            if probabilities[index] >= MIN_PROBABILITY
        ]
        return MultiLabel([names[index] for index in present], dict(zip(names, probabilities.tolist())), timing_ms)

    return answer


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return the element-wise sigmoid, numerically stable for large scores."""
    small = np.exp(-np.abs(scores))
    probabilities: np.ndarray = np.where(scores >= 0, 1 / (1 + small), small / (1 + small))
    return probabilities
