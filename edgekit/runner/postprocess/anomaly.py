"""Anomaly detection by a model that has only learnt normal samples.

It reconstructs a sample, and does so badly if it never learnt such samples. Or it returns a map of how far each part of
a picture is from normal pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Anomaly:
    """An answer about whether a sample is an anomaly.

    `score` is the mean squared error of the reconstruction, or the largest value of `map`, the distances
    (rows, columns) float32 of a picture's parts. Above `threshold`, the sample is an anomaly.
    """

    is_anomaly: bool
    score: float
    threshold: float
    label: str
    timing_ms: dict[str, float]
    map: np.ndarray | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer, without the map, as a dict for JSON."""
        return {name: value for name, value in vars(self).items() if name != "map"}

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        what = "mean squared error" if self.map is None else "largest distance"
        return [self.label, f"  {self.score:.6g}  {what}, an anomaly above {self.threshold:.6g}"]


def gives_map(manifest: Manifest) -> bool:
    """Return whether the model returns a map of distances, which never has the shape of its input."""
    return manifest.output_shape != manifest.input.answer


def needs_sample(manifest: Manifest) -> bool:
    """See `edgekit.runner.postprocess`. A reconstruction is compared with the sample."""
    return not gives_map(manifest)


def make_postprocessor(manifest: Manifest) -> Callable[..., Anomaly]:
    """See `edgekit.runner.postprocess`.

    The function's last argument is the preprocessed sample, with its axes in the order of the outputs.
    """
    threshold, labels, is_map = manifest.threshold, manifest.labels, gives_map(manifest)
    assert threshold is not None

    def answer(
        outputs: np.ndarray, top_k: int, timing_ms: dict[str, float], sample: np.ndarray | None = None
    ) -> Anomaly:
        if is_map:
            score, distances = float(outputs.max()), outputs[0]
        else:
            assert sample is not None
            score, distances = float(np.square(outputs.astype(np.float64) - sample).mean()), None
        return Anomaly(score > threshold, score, threshold, labels[score > threshold], timing_ms, distances)

    return answer
