"""What each layer costs: one layer quantized at a time, all others in float, with the ranges PTQ found."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from nncf.common.graph import NNCFGraph, NNCFNode
from nncf.torch.function_hook.nncf_graph.nncf_graph_builder import build_nncf_graph
from nncf.torch.quantization.layers import BaseQuantizer
from torch import nn

from edgekit import train
from edgekit.eager import eager_input
from edgekit.models.quantized import PREFIX, float_state
from edgekit.stages.quantize.ptq import spread

HOOKS = "__nncf_hooks."
NO_NOISE_DB = 200.0


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer with weights and the quantizers that make it an int8 layer: its weights' and its inputs'."""

    name: str
    kind: str
    quantizers: tuple[str, ...]


def sensitivity(
    module: nn.Module, quantized: nn.Module, x: np.ndarray, y: np.ndarray, preprocess: list[dict[str, Any]], count: int
) -> dict[str, Any]:
    """The table, most sensitive layer first: output SNR in dB against float, and drop of top-1 accuracy.

    x (n, *sample) raw, y (n,); at most `count` of them are used. SNR is over all logits, 200 dB: no difference.
    """
    chosen = spread(x, count)
    x, y = x[chosen], y[chosen]
    probe = copy.deepcopy(quantized)
    # so that only the quantizers differ from float, whatever quantizing did to the weights
    probe.network.load_state_dict(module.state_dict())  # type: ignore[union-attr]
    quantizers = {name: part for name, part in probe.named_modules() if isinstance(part, BaseQuantizer)}
    reference = train.logits(module, x, preprocess)
    rows = []
    for layer in quantized_layers(probe, eager_input(x[:1], preprocess)):
        for name, quantizer in quantizers.items():
            (quantizer.enable_quantization if name in layer.quantizers else quantizer.disable_quantization)()
        scores = train.logits(probe, x, preprocess)
        rows.append(
            {
                "layer": layer.name,
                "kind": layer.kind,
                "snr_db": round(snr_db(reference, scores), 2),
                "drop_pp": round(100 * (_top1(reference, y) - _top1(scores, y)), 4),
            }
        )
    rows.sort(key=lambda row: (row["snr_db"], row["layer"]))
    return {"samples": len(y), "float_accuracy": _top1(reference, y), "layers": rows}


def snr_db(reference: np.ndarray, value: np.ndarray) -> float:
    """10 log10 of the reference's power over that of the difference, at most 200 dB."""
    signal = float(np.sum(np.square(reference, dtype=np.float64)))
    noise = float(np.sum(np.square(reference.astype(np.float64) - value)))
    if noise == 0:
        return NO_NOISE_DB
    return min(NO_NOISE_DB, 10 * math.log10(signal / noise)) if signal else -NO_NOISE_DB


def quantized_layers(quantized: nn.Module, example: torch.Tensor) -> list[QuantizedLayer]:
    """Layers with quantized weights, in the order of execution; `example` is one network input of batch 1."""
    graph = build_nncf_graph(quantized, example)
    weights = {PREFIX + name for name in float_state(quantized)}
    found: dict[str, QuantizedLayer] = {}
    for node in graph.topological_sort():
        owner = _owner(graph, node)
        held = [parent.node_name for parent in graph.get_previous_nodes(node) if parent.node_name in weights]
        if owner is None or not held:
            continue
        name = held[0][len(PREFIX) :].removesuffix(".weight")
        for consumer in graph.get_next_nodes(node):
            before = found.get(name, QuantizedLayer(name, consumer.node_type, ()))
            parts = {*before.quantizers, owner, *_feeding(graph, consumer)}
            found[name] = QuantizedLayer(name, before.kind, tuple(sorted(parts)))
    return list(found.values())


def _feeding(graph: NNCFGraph, node: NNCFNode) -> set[str]:
    """The nearest quantizers upstream of `node`, seen through layers such as pooling that quantize nothing."""
    found, seen, ahead = set(), set(), list(graph.get_previous_nodes(node))
    while ahead:
        current = ahead.pop()
        if current.node_name in seen:
            continue
        seen.add(current.node_name)
        owner = _owner(graph, current)
        if owner is None:
            ahead += graph.get_previous_nodes(current)
        else:
            found.add(owner)
    return found


def _owner(graph: NNCFGraph, node: NNCFNode) -> str | None:
    """Name of the quantizer whose operation `node` is, by the ranges that feed it; None for any other operation."""
    parents = [parent.node_name for parent in graph.get_previous_nodes(node)]
    ranges = [name for name in parents if name.startswith(HOOKS)]
    return ranges[0].rpartition(".")[0] if ranges else None


def _top1(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(scores.argmax(axis=1) == y))
