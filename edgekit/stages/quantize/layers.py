"""Layers that have weights, and the quantizers that make each of them an int8 layer, read from nncf's graph."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from nncf.common.graph import NNCFGraph, NNCFNode
from nncf.torch.function_hook.nncf_graph.nncf_graph_builder import build_nncf_graph
from torch import nn

from edgekit.models.quantized import PREFIX, Quantizable, arguments, float_state

HOOKS = "__nncf_hooks."


@dataclass(frozen=True)
class QuantizedLayer:
    """A layer by the name of its module in the plain network, and its quantizers by theirs: of weights, of inputs."""

    name: str
    kind: str
    weights: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def quantizers(self) -> tuple[str, ...]:
        return tuple(sorted({*self.weights, *self.inputs}))


def quantized_layers(quantized: nn.Module, example: torch.Tensor) -> list[QuantizedLayer]:
    """Layers with quantized weights, in the order of execution; `example` is one network input of batch 1."""
    graph = build_nncf_graph(quantized, arguments(quantized, example))
    weights = {PREFIX + name for name in float_state(quantized)}
    found: dict[str, QuantizedLayer] = {}
    for node in graph.topological_sort():
        owner = _owner(graph, node)
        held = [parent.node_name for parent in graph.get_previous_nodes(node) if parent.node_name in weights]
        if owner is None or not held:
            continue
        name = held[0][len(PREFIX) :].removesuffix(".weight")
        for consumer in graph.get_next_nodes(node):
            before = found.get(name, QuantizedLayer(name, consumer.node_type, (), ()))
            own = tuple(sorted({*before.weights, owner}))
            inputs = tuple(sorted({*before.inputs, *_feeding(graph, consumer)} - {owner}))
            found[name] = QuantizedLayer(name, before.kind, own, inputs)
    return list(found.values())


def operations(network: Quantizable, example: torch.Tensor, modules: Collection[str]) -> list[str]:
    """nncf's names of the operations that use the weights of these modules of the plain network."""
    if not modules:
        return []
    graph = build_nncf_graph(network, arguments(network, example))
    held = {PREFIX + name for name in modules}
    return [
        node.node_name
        for node in graph.topological_sort()
        if any(parent.node_name.rpartition(".")[0] in held for parent in graph.get_previous_nodes(node))
    ]


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
