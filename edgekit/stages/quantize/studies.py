"""Studies of a quantized network: layer sensitivity, histograms of values, and the choice of calibration samples.

The histograms show the weights and the inputs of the most and the least sensitive layer before and after int8. Each bin
covers a whole number of quantizer levels, so that regular gaps in the plot come from the values and not from the
binning. As in the sensitivity table, only the layer that is examined is quantized, so its inputs are those of the float
network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from nncf.torch.quantization.layers import BaseQuantizer
from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.schema.quantization import (
    CalibrationSize,
    CalibrationStudy,
    LayerSensitivity,
    Sensitivity,
    ValueCounts,
    ValueHistogram,
)
from edgekit.data import Split
from edgekit.models.eager import eager_input, single_thread
from edgekit.stages.quantize.ptq import QuantizedLayer, evenly_spaced, quantize, quantized_layers
from edgekit.targets.jobs import Quantization
from edgekit.training import predict
from edgekit.training.predict import score_samples

MAX_SNR_DB = 200.0


def sensitivity(
    module: nn.Module,
    quantized: nn.Module,
    split: Split,
    preprocess: list[dict[str, Any]],
    max_samples: int,
    task: str = "classification",
) -> Sensitivity:
    """Quantize one layer at a time and measure what that does to the outputs, most sensitive layer first.

    Each layer has the SNR of all outputs in dB (200 dB means no difference) and the accuracy drop in percentage points.
    At most `max_samples` samples of the split are used.
    """
    split = split.take(_sample_indices(split, max_samples, task))
    x = split.x

    def accuracy(outputs: np.ndarray) -> float:
        return tasks.accuracy(score_samples(outputs, split, preprocess, task))

    probe = float_with_quantizers(module, quantized)
    reference = predict.logits(module, x, preprocess)
    rows: list[LayerSensitivity] = []
    layers = quantized_layers(probe, eager_input(x[:1], preprocess))
    for layer in progress.track(layers, "layer", lambda layer: "measuring the sensitivity of each layer"):
        enable_only(probe, layer.quantizers)
        scores = predict.logits(probe, x, preprocess)
        rows.append(
            {
                "layer": layer.name,
                "kind": layer.kind,
                "snr_db": round(snr_db(reference, scores), 2),
                "drop_pp": round(100 * (accuracy(reference) - accuracy(scores)), 4),
            }
        )
    rows.sort(key=lambda row: (row["snr_db"], row["layer"]))
    return {"samples": len(split), "float_accuracy": accuracy(reference), "layers": rows}


def _sample_indices(split: Split, max_samples: int, task: str) -> np.ndarray:
    """Return indices of at most `max_samples` evenly spaced samples, and of all anomalies in anomaly detection."""
    indices = evenly_spaced(split.x, max_samples)
    return np.union1d(indices, np.flatnonzero(split.y)) if tasks.load_task(task).RECONSTRUCTS else indices


def float_with_quantizers(module: nn.Module, quantized: nn.Module) -> nn.Module:
    """Return a copy of `quantized` with the weights of the float network `module`."""
    probe = copy.deepcopy(quantized)
    probe.network.load_state_dict(module.state_dict())  # type: ignore[union-attr]
    return probe


def enable_only(probe: nn.Module, quantizers: Collection[str]) -> None:
    """Enable these quantizers of `probe` and disable all others."""
    for name, part in probe.named_modules():
        if isinstance(part, BaseQuantizer):
            (part.enable_quantization if name in quantizers else part.disable_quantization)()


def snr_db(reference: np.ndarray, value: np.ndarray) -> float:
    """Return the signal-to-noise ratio of `value` in dB, 10 log10 of signal power over error power, at most 200."""
    signal = float(np.sum(np.square(reference, dtype=np.float64)))
    noise = float(np.sum(np.square(reference.astype(np.float64) - value)))
    if noise == 0:
        return MAX_SNR_DB
    return min(MAX_SNR_DB, 10 * math.log10(signal / noise)) if signal else -MAX_SNR_DB


HISTOGRAM_SAMPLES = 64
LEVELS_PER_BIN = 4
MAX_BINS_OUTSIDE = 32
"""Largest number of bins on each side of the quantizer's range; values farther out are counted in the outermost bin."""


def histograms(
    module: nn.Module, quantized: nn.Module, x: np.ndarray, preprocess: list[dict[str, Any]], worst_first: Sequence[str]
) -> list[ValueHistogram]:
    """Return histograms of weights and inputs for the first and the last layer of `worst_first`.

    `x` holds raw samples of shape (n, *sample). Weights are counted in steps of their channel's quantizer, activations
    in their own unit.
    """
    inputs = eager_input(x[evenly_spaced(x, HISTOGRAM_SAMPLES)], preprocess)
    probe = float_with_quantizers(module, quantized)
    layers = {layer.name: layer for layer in quantized_layers(probe, inputs[:1])}
    rows: list[ValueHistogram] = []
    with single_thread(), torch.no_grad():
        for name in dict.fromkeys((*worst_first[:1], *worst_first[-1:])):
            rows += _layer_histograms(probe, layers[name], inputs, most_sensitive=name == worst_first[0])
    return rows


def _layer_histograms(
    probe: nn.Module, layer: QuantizedLayer, inputs: Tensor, most_sensitive: bool
) -> Iterator[ValueHistogram]:
    enable_only(probe, layer.quantizers)
    quantizer_names = {"weights": layer.weights[0], "activations": layer.inputs[0] if layer.inputs else None}
    quantizers = {part: probe.get_submodule(name) for part, name in quantizer_names.items() if name}
    with _record_quantizers(quantizers) as recorded:
        probe(inputs)
    for part, quantizer in quantizers.items():
        before, after = recorded[part]
        yield {
            "layer": layer.name,
            "kind": layer.kind,
            "most_sensitive": most_sensitive,
            "part": part,
            **value_counts(quantizer, before, after),
        }


def value_counts(quantizer: nn.Module, before: Tensor, after: Tensor) -> ValueCounts:
    """Count float values and their quantized values over the same bins.

    `edges`, and `range` (the lowest and the highest level), are in `unit`: `value`, or `step` if each channel has a
    step size of its own.
    """
    assert isinstance(quantizer, BaseQuantizer)
    low, high = quantizer.level_low, quantizer.level_high
    bottom, top = (end.detach().double() for end in quantizer.get_input_low_input_high())
    step = (top - bottom) / (high - low)
    # on the quantizer's own axis, its levels are the integers `low` to `high`
    position, level = (((values.double() - bottom) / step + low).numpy().ravel() for values in (before, after))
    level = level.round()
    axis = _bin_edges(position, low, high)
    edges, level_range = axis, np.array([low, high], np.float64)
    if step.numel() == 1:
        edges, level_range = ((axis_values - low) * step.item() + bottom.item() for axis_values in (edges, level_range))
    return {
        "unit": "value" if step.numel() == 1 else "step",
        "edges": edges.tolist(),
        "range": level_range.tolist(),
        "float": _counts(position, axis),
        "int8": _counts(level, axis),
        "levels_used": len(np.unique(level)),
        "clipped": int(np.sum((position < low - 0.5) | (position > high + 0.5))),
    }


def _bin_edges(position: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return bin edges `LEVELS_PER_BIN` levels apart, aligned with the lowest level, as far out as values reach."""
    first, inside = low - 0.5, -(-(high - low + 1) // LEVELS_PER_BIN)
    below = (first - position.min()) / LEVELS_PER_BIN
    above = (position.max() - first) / LEVELS_PER_BIN - inside
    begin, end = (int(np.clip(np.ceil(bins), 0, MAX_BINS_OUTSIDE)) for bins in (below, above))
    return first + LEVELS_PER_BIN * np.arange(-begin, inside + end + 1, dtype=np.float64)


def _counts(values: np.ndarray, edges: np.ndarray) -> list[int]:
    counts: list[int] = np.histogram(values.clip(edges[0], edges[-1]), edges)[0].tolist()
    return counts


@contextmanager
def _record_quantizers(quantizers: dict[str, nn.Module]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Record the input and the output of each quantizer in its next call."""
    recorded: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = [
        quantizer.register_forward_hook(partial(_record_call, recorded, part)) for part, quantizer in quantizers.items()
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _record_call(
    recorded: dict[str, tuple[Tensor, Tensor]], part: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> None:
    recorded[part] = inputs[0].detach().clone(), output.detach().clone()


def calibration_study(
    module: nn.Module,
    calibration: Split,
    validation: Split,
    sizes: Sequence[int],
    recipe: Quantization,
    preprocess: list[dict[str, Any]],
    seed: int,
    task: str = "classification",
) -> CalibrationStudy:
    """Quantize with two random subsets of each size, and compare the results on the validation split.

    Sizes that are not smaller than the calibration split are listed in `too_large`.
    """
    kind = tasks.load_task(task)
    inputs = predict.inputs_for(task, validation.x, preprocess)

    def outputs(network: nn.Module) -> np.ndarray:
        return predict.logits(network, validation.x, preprocess)

    def accuracy(outputs_of_network: np.ndarray) -> float:
        return tasks.accuracy(kind.score_samples(outputs_of_network, inputs, validation.y))

    reference = outputs(module)
    rows: list[CalibrationSize] = []
    for size in progress.track(
        sorted(size for size in sizes if size < len(calibration)), "size", "calibrating with {} samples".format
    ):
        subsets = calibration_subsets(len(calibration), size, seed)
        first, second = (
            outputs(quantize(module, _inputs(calibration.x[chosen], preprocess), recipe)) for chosen in subsets
        )
        rows.append(
            {
                "samples": size,
                "shared_samples": len(np.intersect1d(*subsets)),
                "snr_db": [round(snr_db(reference, scores), 2) for scores in (first, second)],
                "between_snr_db": round(snr_db(first, second), 2),
                "accuracy": [accuracy(scores) for scores in (first, second)],
                "disagreement": float(np.mean(~kind.same_answers(first, second, inputs))),
            }
        )
    return {
        "calibration_split": len(calibration),
        "validation_samples": len(validation),
        "sizes": rows,
        "too_large": sorted(size for size in sizes if size >= len(calibration)),
    }


def calibration_subsets(available: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of two random subsets, which share samples only if `size` exceeds half of `available`."""
    order = np.random.default_rng([seed, size]).permutation(available)
    return np.sort(order[:size]), np.sort(order[-size:])


def _inputs(x: np.ndarray, preprocess: list[dict[str, Any]]) -> list[Tensor]:
    return list(eager_input(x, preprocess).split(1))
