"""Anomaly detection: the model reconstructs a sample, and does so badly if it never learnt such samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

NEEDS_SAMPLE = True


@dataclass(frozen=True)
class Anomaly:
    """An answer about whether a sample is an anomaly.

    `score` is the mean squared error of the reconstruction. Above `threshold`, the sample is an anomaly.
    """

    is_anomaly: bool
    score: float
    threshold: float
    label: str
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        return [self.label, f"  {self.score:.6g}  mean squared error, an anomaly above {self.threshold:.6g}"]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float], np.ndarray], Anomaly]:
    """See `edgekit.runner.postprocess`.

    The function's last argument is the preprocessed sample, with its axes in the order of the outputs.
    """
    threshold, labels = manifest.threshold, manifest.labels
    assert threshold is not None

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float], sample: np.ndarray) -> Anomaly:
        score = float(np.square(outputs.astype(np.float64) - sample).mean())
        return Anomaly(score > threshold, score, threshold, labels[score > threshold], timing_ms)

    return answer
