"""What each layer costs: one layer quantized at a time, all others in float, with the ranges PTQ found."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from typing import Any

import numpy as np
from nncf.torch.quantization.layers import BaseQuantizer
from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.schema.quantization import LayerSensitivity, Sensitivity
from edgekit.data import Split
from edgekit.models.eager import eager_input
from edgekit.stages.quantize.layers import quantized_layers
from edgekit.stages.quantize.ptq import spread
from edgekit.training import predict
from edgekit.training.evaluate import score_samples

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
    for layer in progress.each(layers, "layer", lambda layer: "sensitivity"):
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
