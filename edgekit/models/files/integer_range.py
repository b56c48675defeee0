"""What an input of integers can hold: it clips what lies outside, and rounds away what is finer, without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.runner.preprocess.steps import GEOMETRY

MOST_LOST = 0.2
"""Share of the samples' sum of magnitudes. Ranges that were calibrated lose some percent, another unit most of it."""

Step = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """An input of int8 or uint8: the integer q stands for scale · (q - zero_point); plain integers have scale 1."""

    dtype: str
    scale: float = 1.0
    zero_point: int = 0

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the largest number that it holds."""
        ends = np.iinfo(self.dtype)
        return self.scale * (int(ends.min) - self.zero_point), self.scale * (int(ends.max) - self.zero_point)

    def lost(self, x: np.ndarray) -> float:
        """Share of the magnitudes of `x` that is not in what the input makes of them, 0 to 1 and more."""
        wanted = x.astype(np.float64)
        held = np.clip(np.rint(wanted / self.scale) * self.scale, *self.limits)
        whole = float(np.abs(wanted).sum())
        return float(np.abs(wanted - held).sum()) / whole if whole else 0.0

    def through(self, raw_dtype: str) -> Step | None:
        """The step that hands it a raw sample's integers as they are, or moved by 128 between signed and unsigned.

        None where no step is needed.
        """
        moved = {("uint8", "int8"): -128, ("int8", "uint8"): 128}.get((raw_dtype, self.dtype), 0)
        zero = self.zero_point - moved
        if zero:
            return {"step": "normalize", "mean": [float(zero)], "std": [_short(1 / self.scale)]}
        return None if self.scale == 1 else {"step": "scale", "factor": _short(self.scale)}


def fault(
    grid: Grid, x: np.ndarray, raw_dtype: str, steps: Sequence[Step], origin: str = "the preprocess makes"
) -> str:
    """What is wrong where the input cannot hold `x`, which `steps` made of raw samples; empty where it can.

    `origin` says in words where `x` comes from.
    """
    lost = grid.lost(x)
    if lost <= MOST_LOST:
        return ""
    return (
        f"{_describe(grid)}, and {origin} {x.min():.6g} to {x.max():.6g}, of which "
        f"{100 * min(lost, 1):.0f} % would be lost; {_advice(grid, raw_dtype, steps)}"
    )


def ambiguity(grid: Grid, raw_dtype: str, steps: Sequence[Step]) -> str:
    """What is to be said where bytes meet an input of bytes whose scale makes other bytes of them; empty elsewhere.

    On the device they would reach it as they are, and elsewhere by its scale.
    """
    step = grid.through(raw_dtype)
    if raw_dtype != grid.dtype or step is None or any(each["step"] not in GEOMETRY for each in steps):
        return ""
    return f"{_describe(grid)}, and the preprocess leaves bytes unchanged; {_advice(grid, raw_dtype, steps)}"


def _describe(grid: Grid) -> str:
    low, high = grid.limits
    return f"takes {grid.dtype} in steps of {grid.scale:.6g}, from {low:.6g} to {high:.6g}"


def _advice(grid: Grid, raw_dtype: str, steps: Sequence[Step]) -> str:
    if raw_dtype not in ("uint8", "int8"):
        return "scale the samples as they were when the model was quantized"
    step = grid.through(raw_dtype)
    already = any(each["step"] not in GEOMETRY for each in steps)
    if step is None:
        return "leave out the steps that scale"
    written = ", ".join(f"{key}: {value}" for key, value in step.items())
    said = f"{'in place of the steps that scale' if already else 'add to its preprocess'}: {{{written}}}"
    return f"give it the numbers of the raw samples unchanged, {said}"


def _short(value: float) -> float:
    """The number with the fewest digits that is the same in float32."""
    return float(str(np.float32(value)))
