"""Check that the calibration samples represent the data, because int8 clips values outside the calibrated ranges.

The check runs the calibration samples and the check samples, which come from validation, through the float network, and
compares their values layer by layer. Values of the check samples outside the range of the calibration samples would be
clipped, and a range much wider than the values of the check samples wastes int8 levels. The ranges that a converter
derives are checked elsewhere.
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
MIN_CLASS_SHARE = 0.5
MIN_CHECK_SAMPLES = 20
"""If there are fewer check samples than this, a calibrated range that is too wide for them is not an error."""
BATCH = 32
CONFIDENCE, HALVINGS = 0.999, 40


@dataclass
class LayerRange:
    """The range of a layer's outputs on the calibration samples and on the check samples.

    `outside` counts the values of the check samples that are more than one int8 step outside the calibrated range.
    """

    layer: str
    calibrated: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    checked: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    outside: int = 0
    values: int = 0

    @property
    def outside_share(self) -> float:
        return self.outside / max(1, self.values)

    @property
    def used_share(self) -> float:
        """The fraction of the calibrated range that the check samples use, 0 to 1."""
        low, high = self.calibrated
        used = min(high, self.checked[1]) - max(low, self.checked[0])
        return max(0.0, min(1.0, used / (high - low))) if high > low else 1.0

    def calibrate(self, values: np.ndarray) -> None:
        self.calibrated = _widen(self.calibrated, values)

    def check(self, values: np.ndarray) -> None:
        low, high = self.calibrated
        step = (high - low) / LEVELS
        self.checked = _widen(self.checked, values)
        self.outside += int(np.sum((values < low - step) | (values > high + step)))
        self.values += values.size


def without_clipped_anomalies(data: Data, preprocess: list[dict[str, Any]]) -> Data:
    """Return the data without validation anomalies whose inputs exceed the range of the calibration inputs.

    Calibration samples are all normal, so int8 rightly clips such anomalies, and their outputs change. The benchmark
    stage measures, on the whole validation split, whether they can still be distinguished from normal samples.
    """
    if not tasks.load_task(data.task).RECONSTRUCTS:
        return data
    calibration_inputs = evaluate.network_inputs(data.calibration.x, preprocess)
    low, high, split = calibration_inputs.min(), calibration_inputs.max(), data.validation
    is_kept = split.y == 0
    for start in range(0, len(split), BATCH):
        batch = slice(start, start + BATCH)
        x = evaluate.network_inputs(split.x[batch], preprocess).reshape(len(split.x[batch]), -1)
        is_kept[batch] |= ((x >= low) & (x <= high)).all(axis=1)
    return replace(data, validation=split.take(np.flatnonzero(is_kept)))


def normal_inputs(inputs: np.ndarray, labels: np.ndarray, task: str) -> np.ndarray:
    """Return the inputs (n, …) that calibration must cover.

    For an anomaly detection, these are the normal inputs, if there are any. For other tasks, these are all inputs.
    """
    normal = labels == 0
    return inputs[normal] if tasks.load_task(task).RECONSTRUCTS and normal.any() else inputs


def layer_ranges(module: nn.Module, calibration: np.ndarray, check_inputs: np.ndarray) -> list[LayerRange]:
    """Return the ranges of the input and of each layer without children, in the order of execution.

    Both arrays are float32 of shape (n, …).
    """
    by_layer: dict[str, LayerRange] = {}
    _record_layers(
        module, calibration, lambda name, values: by_layer.setdefault(name, LayerRange(name)).calibrate(values)
    )
    _record_layers(module, check_inputs, lambda name, values: by_layer[name].check(values))
    return list(by_layer.values())


def outside_by_chance(samples: int) -> float:
    """Return the largest fraction of new samples that may lie, by chance, outside the range of the calibration samples.

    `samples` is the number of calibration samples.

    For any continuous distribution, this fraction follows Beta(2, n - 1) (Wilks 1941). The result is its quantile at
    `CONFIDENCE`: 0.14 for 60 samples, 0.045 for 200 and 0.018 for 500.
    """
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        rarer = (1 - share) ** samples + samples * share * (1 - share) ** (samples - 1)
        low, high = (share, high) if rarer > 1 - CONFIDENCE else (low, share)
    return high


def check_calibration(
    module: nn.Module,
    calibration: np.ndarray,
    labels: np.ndarray,
    classes: int,
    check_inputs: np.ndarray,
    max_outside: float,
    min_used: float,
) -> dict[str, Any]:
    """Check the ranges of all layers and return a record.

    `labels` are those of the calibration samples. Raises ConversionError, which names the worst layer, if values lie
    outside the ranges, the ranges are far too wide, or most classes are missing.
    """
    what = f"calibration → ranges: {len(calibration)} calibration samples"
    advice = "take calibration samples out of train, of every class, and prepare them by the same steps"
    seen_classes = len(np.unique(labels))
    if len(labels) >= classes and seen_classes < MIN_CLASS_SHARE * classes:
        raise ConversionError(f"{what} show {seen_classes} of {classes} classes; {advice}")
    rows = layer_ranges(module, calibration, check_inputs)
    outside, used = max(rows, key=lambda row: row.outside_share), min(rows, key=lambda row: row.used_share)
    allowed = max_outside + outside_by_chance(len(calibration))
    if outside.outside_share > allowed:
        raise ConversionError(
            f"{what} do not cover the values of validation: {100 * outside.outside_share:.1f} % of the values "
            f"of {outside.layer} are outside the calibrated range, at most {100 * allowed:.2g} % allowed "
            f"for so many samples "
            f"({_range_text(outside.calibrated)}, validation has {_range_text(outside.checked)}), and int8 would clip "
            f"them; {advice}, or raise convert.calibration_samples"
        )
    if used.used_share < min_used and len(check_inputs) >= MIN_CHECK_SAMPLES:
        raise ConversionError(
            f"{what} span far more than validation does: {used.layer} uses {100 * used.used_share:.2g} % of its "
            f"calibrated range, at least {100 * min_used:g} % required ({_range_text(used.calibrated)}, validation has "
            f"{_range_text(used.checked)}), which leaves too few int8 levels for them; {advice}"
        )
    return {
        "from": "calibration",
        "to": "ranges",
        "samples": len(calibration),
        "classes": seen_classes,
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
        for start in range(0, len(inputs), BATCH):
            if inputs.dtype.kind == "f":
                record("the input", inputs[start : start + BATCH])
            module(torch.from_numpy(inputs[start : start + BATCH]))


def _record_float(record: Callable[[str, np.ndarray], None], name: str, out: Any) -> None:
    if isinstance(out, torch.Tensor) and out.is_floating_point():
        record(name, out.numpy())


def _widen(range_: list[float], values: np.ndarray) -> list[float]:
    return [min(range_[0], float(values.min())), max(range_[1], float(values.max()))]


def _range_text(bounds: list[float]) -> str:
    return f"{bounds[0]:.3g} to {bounds[1]:.3g}"
