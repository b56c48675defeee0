"""Regression: named values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Regression:
    """One value for each of the bundle's labels, in the label's unit."""

    values: dict[str, float]
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        width = max(map(len, self.values))
        return ["", *(f"  {name:<{width}}  {value:.6g}" for name, value in self.values.items())]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Regression]:
    """See `edgekit.runner.postprocess`. `top_k` is ignored."""
    labels = manifest.labels
    return lambda values, top_k, timing_ms: Regression(dict(zip(labels, values.tolist())), timing_ms)
