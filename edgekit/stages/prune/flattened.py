"""A pooled feature map that is flattened and then joined with others: torch-pruning's graph of it, put right.

torch-pruning 1.6 takes the width behind the concatenation for that of the flattened part, so it counts each channel
more than once. What a channel really becomes is height times width places. It works its graph out anew for every group,
so what puts it right is part of that, from `install` on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from torch_pruning import ops
from torch_pruning.dependency import index_mapping

MAP_AXES = 4
"""Of what is flattened: samples, channels, height, width."""
VECTOR_AXES = 2
"""Of what it becomes. Tokens, (samples, channels, places), keep their channels: torch-pruning reads them right."""


_update: Callable[[Any], None] = index_mapping.update_index_mapping


def install() -> None:
    """Let torch-pruning put every graph right when it has worked it out."""

    def update(graph: Any) -> None:
        _update(graph)
        put_right(graph)

    index_mapping.update_index_mapping = update


def put_right(graph: Any) -> None:
    """Correct where a dependency graph holds the channels of flattened parts of a concatenation, in place."""
    for node in graph.module2node.values():
        if node.type != ops.OPTYPE.CONCAT or _axes(node) != VECTOR_AXES:
            continue
        flattened = {place: _flattening(part) for place, part in enumerate(node.inputs)}
        if not any(flattened.values()):
            continue
        for each in filter(None, flattened.values()):
            _map(each, _places(each))
        widths = [index_mapping.shape_infer.infer_channels_between(graph, part, node) for part in node.inputs]
        if None not in widths:
            factors = [_places(each) if each else 1 for each in flattened.values()]
            node.module.concat_sizes = [width * factor for width, factor in zip(widths, factors, strict=True)]
            index_mapping.update_concat_index_mapping(graph, node)


def _flattening(node: Any) -> Any:
    """What flattens a feature map on the way to here, with only functions of each value behind it; None elsewhere."""
    while node.type == ops.OPTYPE.ELEMENTWISE and len(node.inputs) == 1:
        node = node.inputs[0]
    sizes = getattr(node.grad_fn, "_saved_self_sym_sizes", ())
    is_flattening = node.type == ops.OPTYPE.RESHAPE and len(sizes) == MAP_AXES and _axes(node) == VECTOR_AXES
    return node if is_flattening else None


def _axes(node: Any) -> int:
    """Of what it gives."""
    return len(node.grad_fn._input_metadata[0].shape)  # torch counts from behind, where this is what comes in


def _places(node: Any) -> int:
    """What each channel becomes."""
    return prod(node.grad_fn._saved_self_sym_sizes[2:])


def _map(node: Any, places: int) -> None:
    def mapping(reverse: bool) -> Any:
        return index_mapping._FlattenIndexMapping(stride=places, reverse=reverse) if places > 1 else None

    for before in node.inputs:
        for source, target, reverse in ((node, before, True), (before, node, False)):
            for dependency in source.dependencies:
                if dependency.target is target:
                    dependency.index_mapping[0] = mapping(reverse)
