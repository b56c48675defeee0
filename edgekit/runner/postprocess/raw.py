"""Raw outputs: whatever the model returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import output_vector

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Raw:
    """The model's output as float32, without its batch axis.

    If the model has several outputs, they are joined in `output`, and `outputs` holds them by name.
    """

    output: np.ndarray
    timing_ms: dict[str, float]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        if not self.outputs:
            return {"output": self.output.tolist(), "shape": list(self.output.shape), "timing_ms": self.timing_ms}
        return {
            "outputs": {name: each.tolist() for name, each in self.outputs.items()},
            "shapes": {name: list(each.shape) for name, each in self.outputs.items()},
            "timing_ms": self.timing_ms,
        }

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        if not self.outputs:
            return [_describe(self.output)]
        return [f"{len(self.outputs)} outputs", *(f"  {name} {_describe(y)}" for name, y in self.outputs.items())]


def _describe(y: np.ndarray) -> str:
    return f"float32{list(y.shape)}, from {y.min():.6g} to {y.max():.6g}, mean {y.mean():.6g}"


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Raw]:
    """See `edgekit.runner.postprocess`. `top_k` is ignored."""
    if len(manifest.outputs) == 1:
        return lambda output, top_k, timing_ms: Raw(output, timing_ms)
    names, shapes = [each.name for each in manifest.outputs], [each.answer for each in manifest.outputs]

    def answer(output: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Raw:
        parts = (part[0] for part in output_vector.split(output[None], shapes))
        return Raw(output, timing_ms, dict(zip(names, parts)))

    return answer
