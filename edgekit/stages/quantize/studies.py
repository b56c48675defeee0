"""Studies of a quantized network: what each layer costs, what int8 does to its values, and which samples calibrate.

Values of a layer before and after int8, counted: its weights, and what enters it, for the worst layer and the best.

Bins hold whole levels of the quantizer, so that a comb in the picture is in the values and not in the counting. Only
the examined layer is quantized, as in the sensitivity table, so what enters it is what float gives.
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
    Counts,
    Histogram,
    LayerSensitivity,
    Sensitivity,
)
from edgekit.data import Split
from edgekit.models.eager import eager_input, single_thread
from edgekit.stages.quantize.ptq import QuantizedLayer, quantize, quantized_layers, spread
from edgekit.targets.jobs import Quantization
from edgekit.training import predict
from edgekit.training.predict import score_samples

NO_NOISE_DB = 200.0


def sensitivity(
    module: nn.Module,
    quantized: nn.Module,
    split: Split,
    preprocess: list[dict[str, Any]],
    count: int,
    task: str = "classification",
) -> Sensitivity:
    """The table, most sensitive layer first: output SNR in dB against float, and drop of the accuracy.

    At most `count` samples of the split are used. SNR is over all outputs, 200 dB: no difference.
    """
    split = split.take(_some(split, count, task))
    x = split.x

    def accuracy(outputs: np.ndarray) -> float:
        return tasks.accuracy(score_samples(outputs, split, preprocess, task))

    probe = float_with_quantizers(module, quantized)
    reference = predict.logits(module, x, preprocess)
    rows: list[LayerSensitivity] = []
    layers = quantized_layers(probe, eager_input(x[:1], preprocess))
    for layer in progress.each(layers, "layer", lambda layer: "measuring the sensitivity of each layer"):
        switch_on(probe, layer.quantizers)
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


def _some(split: Split, count: int, task: str) -> np.ndarray:
    """Places of at most `count` samples, evenly; of an anomaly detection every anomaly too, which may be few."""
    places = spread(split.x, count)
    return np.union1d(places, np.flatnonzero(split.y)) if tasks.named(task).RECONSTRUCTS else places


def float_with_quantizers(module: nn.Module, quantized: nn.Module) -> nn.Module:
    """A copy of `quantized` with the float weights, so that only its quantizers differ from float."""
    probe = copy.deepcopy(quantized)
    probe.network.load_state_dict(module.state_dict())  # type: ignore[union-attr]
    return probe


def switch_on(probe: nn.Module, quantizers: Collection[str]) -> None:
    """These quantizers and no others."""
    for name, part in probe.named_modules():
        if isinstance(part, BaseQuantizer):
            (part.enable_quantization if name in quantizers else part.disable_quantization)()


def snr_db(reference: np.ndarray, value: np.ndarray) -> float:
    """10 log10 of the reference's power over that of the difference, at most 200 dB."""
    signal = float(np.sum(np.square(reference, dtype=np.float64)))
    noise = float(np.sum(np.square(reference.astype(np.float64) - value)))
    if noise == 0:
        return NO_NOISE_DB
    return min(NO_NOISE_DB, 10 * math.log10(signal / noise)) if signal else -NO_NOISE_DB


HISTOGRAM_SAMPLES = 64
LEVELS_PER_BIN = 4
BINS_OUTSIDE = 32
"""At most so many at either end of the range; what is farther out is counted in the last."""


def histograms(
    module: nn.Module, quantized: nn.Module, x: np.ndarray, preprocess: list[dict[str, Any]], worst_first: Sequence[str]
) -> list[Histogram]:
    """Two rows, weights and activations, for the first and the last of `worst_first`; x (n, *sample) raw.

    Weights are in steps of their own channel's quantizer, activations in units of their own.
    """
    inputs = eager_input(x[spread(x, HISTOGRAM_SAMPLES)], preprocess)
    probe = float_with_quantizers(module, quantized)
    layers = {layer.name: layer for layer in quantized_layers(probe, inputs[:1])}
    rows: list[Histogram] = []
    with single_thread(), torch.no_grad():
        for name in dict.fromkeys((*worst_first[:1], *worst_first[-1:])):
            rows += _layer(probe, layers[name], inputs, most_sensitive=name == worst_first[0])
    return rows


def _layer(probe: nn.Module, layer: QuantizedLayer, inputs: Tensor, most_sensitive: bool) -> Iterator[Histogram]:
    switch_on(probe, layer.quantizers)
    wanted = {"weights": layer.weights[0], "activations": layer.inputs[0] if layer.inputs else None}
    quantizers = {part: probe.get_submodule(name) for part, name in wanted.items() if name}
    with _recorded(quantizers) as seen:
        probe(inputs)
    for part, quantizer in quantizers.items():
        before, after = seen[part]
        yield {
            "layer": layer.name,
            "kind": layer.kind,
            "most_sensitive": most_sensitive,
            "part": part,
            **count(quantizer, before, after),
        }


def count(quantizer: nn.Module, before: Tensor, after: Tensor) -> Counts:
    """Counts of float values and of what the quantizer made of them, over the same bins.

    `edges` and `range`, the lowest and the highest level, are in `unit`: `value`, or `step` of the value's own channel
    where each channel has one.
    """
    assert isinstance(quantizer, BaseQuantizer)
    low, high = quantizer.level_low, quantizer.level_high
    bottom, top = (end.detach().double() for end in quantizer.get_input_low_input_high())
    step = (top - bottom) / (high - low)
    # on the quantizer's own axis its levels are the whole numbers `low` to `high`
    position, level = (((values.double() - bottom) / step + low).numpy().ravel() for values in (before, after))
    level = level.round()
    axis = _edges(position, low, high)
    edges, ends = axis, np.array([low, high], np.float64)
    if step.numel() == 1:
        edges, ends = ((places - low) * step.item() + bottom.item() for places in (edges, ends))
    return {
        "unit": "value" if step.numel() == 1 else "step",
        "edges": edges.tolist(),
        "range": ends.tolist(),
        "float": _counts(position, axis),
        "int8": _counts(level, axis),
        "levels_used": len(np.unique(level)),
        "clipped": int(np.sum((position < low - 0.5) | (position > high + 0.5))),
    }


def _edges(position: np.ndarray, low: int, high: int) -> np.ndarray:
    """Ends of the bins, `LEVELS_PER_BIN` levels each from the lowest on, and outwards as far as there are values."""
    first, inside = low - 0.5, -(-(high - low + 1) // LEVELS_PER_BIN)
    below = (first - position.min()) / LEVELS_PER_BIN
    above = (position.max() - first) / LEVELS_PER_BIN - inside
    begin, end = (int(np.clip(np.ceil(bins), 0, BINS_OUTSIDE)) for bins in (below, above))
    return first + LEVELS_PER_BIN * np.arange(-begin, inside + end + 1, dtype=np.float64)


def _counts(values: np.ndarray, edges: np.ndarray) -> list[int]:
    counts: list[int] = np.histogram(values.clip(edges[0], edges[-1]), edges)[0].tolist()
    return counts


@contextmanager
def _recorded(quantizers: dict[str, nn.Module]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """What goes into each quantizer and what comes out, once it has run."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = [quantizer.register_forward_hook(partial(_record, seen, part)) for part, quantizer in quantizers.items()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _record(
    seen: dict[str, tuple[Tensor, Tensor]], part: str, _: nn.Module, given: tuple[Tensor, ...], made: Tensor
) -> None:
    seen[part] = given[0].detach().clone(), made.detach().clone()


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
    """A row for each size, the smallest first; its networks answer the validation split.

    Sizes that the split cannot fill twice differently are left out, and named.
    """
    kind = tasks.named(task)
    inputs = predict.inputs_for(task, validation.x, preprocess)

    def outputs(network: nn.Module) -> np.ndarray:
        return predict.logits(network, validation.x, preprocess)

    def accuracy(found: np.ndarray) -> float:
        return tasks.accuracy(kind.score_samples(found, inputs, validation.y))

    reference = outputs(module)
    rows: list[CalibrationSize] = []
    for size in progress.each(
        sorted(size for size in sizes if size < len(calibration)), "size", "calibrating with {} samples".format
    ):
        drawn = calibration_subsets(len(calibration), size, seed)
        first, second = (
            outputs(quantize(module, _inputs(calibration.x[chosen], preprocess), recipe)) for chosen in drawn
        )
        rows.append(
            {
                "samples": size,
                "shared_samples": len(np.intersect1d(*drawn)),
                "snr_db": [round(snr_db(reference, scores), 2) for scores in (first, second)],
                "between_snr_db": round(snr_db(first, second), 2),
                "accuracy": [accuracy(scores) for scores in (first, second)],
                "disagreement": float(np.mean(~kind.same(first, second, inputs))),
            }
        )
    return {
        "calibration_split": len(calibration),
        "validation_samples": len(validation),
        "sizes": rows,
        "too_large": sorted(size for size in sizes if size >= len(calibration)),
    }


def calibration_subsets(available: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two draws without replacement; they share samples only where `size` is over half of what there is."""
    order = np.random.default_rng([seed, size]).permutation(available)
    return np.sort(order[:size]), np.sort(order[-size:])


def _inputs(x: np.ndarray, preprocess: list[dict[str, Any]]) -> list[Tensor]:
    return list(eager_input(x, preprocess).split(1))
