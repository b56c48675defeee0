"""Do the calibration samples show what the network meets? Int8 ranges hold what they show, and nothing beyond.

Seen on the float network, layer by layer: values of the check samples beyond the calibrated range would be clipped, and
a range far wider than they are wastes its levels. It says nothing of what a converter then makes of the ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from edgekit.core import tasks
from edgekit.core.errors import ConversionError
from edgekit.models.eager import single_thread
from edgekit.targets import evaluate

if TYPE_CHECKING:
    from edgekit.data import Data

LEVELS = 255
LEAST_CLASSES = 0.5
LEAST_MET = 20
"""Of fewer check samples the span says nothing."""
BATCH = 32
SURE, HALVINGS = 0.999, 40


@dataclass
class Range:
    """Of one layer's outputs: what calibration showed, what the check samples show, how many lie outside by a step."""

    layer: str
    calibrated: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    met: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    outside: int = 0
    values: int = 0

    @property
    def outside_share(self) -> float:
        return self.outside / max(1, self.values)

    @property
    def used_share(self) -> float:
        """Of the calibrated range, 0 to 1."""
        low, high = self.calibrated
        met = min(high, self.met[1]) - max(low, self.met[0])
        return max(0.0, min(1.0, met / (high - low))) if high > low else 1.0

    def calibrate(self, values: np.ndarray) -> None:
        self.calibrated = _widened(self.calibrated, values)

    def meet(self, values: np.ndarray) -> None:
        low, high = self.calibrated
        step = (high - low) / LEVELS
        self.met = _widened(self.met, values)
        self.outside += int(np.sum((values < low - step) | (values > high + step)))
        self.values += values.size


def without_clipped(data: Data, preprocess: list[dict[str, Any]]) -> Data:
    """The data, of whose validation samples no anomaly's input lies beyond what calibration's inputs show.

    Calibration is all normal, so int8 clips such an anomaly as it should, and its answer cannot stay the same. Whether
    it is still separated from normal samples is decided by the budget, on all of validation.
    """
    if not tasks.named(data.task).RECONSTRUCTS:
        return data
    shown = evaluate.network_inputs(data.calibration.x, preprocess)
    low, high, split = shown.min(), shown.max(), data.validation
    kept = split.y == 0
    for start in range(0, len(split), BATCH):
        batch = slice(start, start + BATCH)
        x = evaluate.network_inputs(split.x[batch], preprocess).reshape(len(split.x[batch]), -1)
        kept[batch] |= ((x >= low) & (x <= high)).all(axis=1)
    return replace(data, validation=split.take(np.flatnonzero(kept)))


def ordinary(inputs: np.ndarray, labels: np.ndarray, task: str) -> np.ndarray:
    """Of the inputs (n, …) what calibration must show: all, or the normal samples of an anomaly detection, if any."""
    normal = labels == 0
    return inputs[normal] if tasks.named(task).RECONSTRUCTS and normal.any() else inputs


def ranges(module: nn.Module, calibration: np.ndarray, met: np.ndarray) -> list[Range]:
    """One for the input and one for each layer without children, in the order of execution; both (n, …) float32."""
    found: dict[str, Range] = {}
    _record_layers(module, calibration, lambda name, values: found.setdefault(name, Range(name)).calibrate(values))
    _record_layers(module, met, lambda name, values: found[name].meet(values))
    return list(found.values())


def by_chance(samples: int) -> float:
    """The share of what comes that may lie outside the range of so many samples of the same kind, surely (`SURE`).

    It is distributed as Beta(2, n - 1), whatever the samples are (Wilks 1941): below p with the probability that more
    than one of n uniform numbers is. For 60 samples 0.14, for 200 0.045, for 500 0.018.
    """
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        rarer = (1 - share) ** samples + samples * share * (1 - share) ** (samples - 1)
        low, high = (share, high) if rarer > 1 - SURE else (low, share)
    return high


def check_calibration(
    module: nn.Module,
    calibration: np.ndarray,
    labels: np.ndarray,
    classes: int,
    met: np.ndarray,
    most_outside: float,
    least_used: float,
) -> dict[str, Any]:
    """A row of figures; ConversionError names the layer that the samples (`labels` are theirs) calibrate worst."""
    what = f"calibration → ranges: {len(calibration)} calibration samples"
    advice = "take calibration samples out of train, of every class, and prepare them by the same steps"
    shown = len(np.unique(labels))
    if len(labels) >= classes and shown < LEAST_CLASSES * classes:
        raise ConversionError(f"{what} show {shown} of {classes} classes; {advice}")
    rows = ranges(module, calibration, met)
    outside, used = max(rows, key=lambda row: row.outside_share), min(rows, key=lambda row: row.used_share)
    allowed = most_outside + by_chance(len(calibration))
    if outside.outside_share > allowed:
        raise ConversionError(
            f"{what} do not show what validation shows: {100 * outside.outside_share:.1f} % of the values of "
            f"{outside.layer} lie outside the calibrated range, at most {100 * allowed:.2g} % asked of so many samples "
            f"({_range_text(outside.calibrated)}, validation has {_range_text(outside.met)}), and int8 would clip "
            f"them; {advice}, or raise convert.calibration_samples"
        )
    if used.used_share < least_used and len(met) >= LEAST_MET:
        raise ConversionError(
            f"{what} span far more than validation does: {used.layer} uses {100 * used.used_share:.2g} % of its "
            f"calibrated range, at least {100 * least_used:g} % asked ({_range_text(used.calibrated)}, validation has "
            f"{_range_text(used.met)}), and int8 has no levels left for it; {advice}"
        )
    return {
        "from": "calibration",
        "to": "ranges",
        "samples": len(calibration),
        "classes": shown,
        "most_outside": outside.outside_share,
        "most_outside_layer": outside.layer,
        "least_used": used.used_share,
        "least_used_layer": used.layer,
    }


def _record_layers(module: nn.Module, inputs: np.ndarray, record: Callable[[str, np.ndarray], None]) -> None:
    with ExitStack() as stack, single_thread(), torch.inference_mode():
        for name, part in module.named_modules():
            if name and next(part.children(), None) is None:
                handle = part.register_forward_hook(lambda _, __, out, name=name: _record_float(record, name, out))
                stack.callback(handle.remove)
        for place in range(0, len(inputs), BATCH):
            if inputs.dtype.kind == "f":
                record("the input", inputs[place : place + BATCH])
            module(torch.from_numpy(inputs[place : place + BATCH]))


def _record_float(record: Callable[[str, np.ndarray], None], name: str, out: Any) -> None:
    if isinstance(out, torch.Tensor) and out.is_floating_point():
        record(name, out.numpy())


def _widened(range_: list[float], values: np.ndarray) -> list[float]:
    return [min(range_[0], float(values.min())), max(range_[1], float(values.max()))]


def _range_text(ends: list[float]) -> str:
    return f"{ends[0]:.3g} to {ends[1]:.3g}"
