"""The model's output as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Raw:
    """`output` is float32, without its batch axis."""

    output: np.ndarray
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"output": self.output.tolist(), "shape": list(self.output.shape), "timing_ms": self.timing_ms}

    def lines(self) -> list[str]:
        """For people; the first line ends the one that names the input."""
        low, mean, high = self.output.min(), self.output.mean(), self.output.max()
        return [f"float32{list(self.output.shape)}, from {low:.6g} to {high:.6g}, mean {mean:.6g}"]


def maker(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Raw]:
    """See the package; the number of labels wanted has no meaning here."""
    return lambda output, top_k, timing_ms: Raw(output, timing_ms)
