"""Values of a layer before and after int8, counted: its weights, and what enters it, for the worst layer and the best.

Bins hold whole levels of the quantizer, so that a comb in the picture is in the values and not in the counting. Only
the examined layer is quantized, as in the sensitivity table, so what enters it is what float gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from nncf.torch.quantization.layers import BaseQuantizer
from torch import Tensor, nn

from edgekit.core.schema.quantization import Counts, Histogram
from edgekit.models.eager import eager_input, single_thread
from edgekit.stages.quantize.layers import QuantizedLayer, quantized_layers
from edgekit.stages.quantize.ptq import spread
from edgekit.stages.quantize.sensitivity import float_with_quantizers, switch_on

SAMPLES = 64
LEVELS_PER_BIN = 4
BINS_OUTSIDE = 32
"""At most so many at either end of the range; what is farther out is counted in the last."""


def histograms(
    module: nn.Module, quantized: nn.Module, x: np.ndarray, preprocess: list[dict[str, Any]], worst_first: Sequence[str]
) -> list[Histogram]:
    """Two rows, weights and activations, for the first and the last of `worst_first`; x (n, *sample) raw.

    Weights are in steps of their own channel's quantizer, activations in units of their own.
    """
    inputs = eager_input(x[spread(x, SAMPLES)], preprocess)
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
