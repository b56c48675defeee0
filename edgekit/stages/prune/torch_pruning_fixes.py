"""Two faults of torch-pruning 1.6 and how they are avoided: endless searches, and widths that it counts twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from torch import nn
from torch_pruning import ops
from torch_pruning.dependency import graph, index_mapping, shape_infer

LEAST, TIMES_AS_MANY = 1 << 13, 4
"""Most channels, or places that channels become, of a layer in a group: so many, or times the widest layer's."""
MOST_VISITS, VISITS_PER_LAYER = 500, 10
"""Most steps of the search for one group, and how many there may be for each layer of a large network."""
LIMIT_S = 120.0
"""Longest time of what `limited` encloses."""

_limits: list[tuple[float, float, float]] = [(math.inf, math.inf, math.inf)]
"""When the search must have ended, most channels of a layer, and most steps; the innermost last."""


class InCircle(ValueError):
    """One group has no end."""


class OutOfTime(Exception):
    """The search was given up."""


@contextmanager
def limited(module: nn.Module, seconds: float = LIMIT_S) -> Iterator[None]:
    """Inside, a search for groups of this network that takes longer ends in OutOfTime, one without end in InCircle.

    Behind `nn.LocalResponseNorm` and a flattening, torch-pruning 1.6 takes each channel for several places of the next
    layer on every round of such a circle, and fills the memory. A group of a real network stays far below these limits.
    """
    widest = max((side for each in module.parameters() for side in each.shape), default=1)
    channels = max(LEAST, TIMES_AS_MANY * widest)
    visits = max(MOST_VISITS, VISITS_PER_LAYER * sum(1 for _ in module.modules()))
    _limits.append((time.monotonic() + seconds, channels, visits))
    try:
        yield
    finally:
        _limits.pop()


def install_limits() -> None:
    """Put the limits into torch-pruning; once more changes nothing."""
    if graph.Group is _Group:
        return
    graph.Group = _Group
    index_mapping._FlattenIndexMapping.__call__ = _counted(index_mapping._FlattenIndexMapping.__call__)
    for name in ("infer_out_channels_recursively", "infer_in_channels_recursively"):
        setattr(shape_infer, name, _timed(getattr(shape_infer, name)))


def _check_time() -> None:
    if time.monotonic() > _limits[-1][0]:
        raise OutOfTime("its groups of channels were not found in time")


def _circle() -> InCircle:
    return InCircle("torch-pruning's graph of its channels runs in a circle")


class _Group(graph.Group):
    def add_dep(self, dep: Any, idxs: Any) -> None:
        _check_time()
        if len(self) >= _limits[-1][2] or len(idxs) > _limits[-1][1]:
            raise _circle()
        super().add_dep(dep, idxs)


def _counted(mapping: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, idxs: Any) -> Any:
        if not self.reverse and len(idxs) * self._stride > _limits[-1][1]:
            raise _circle()
        return mapping(self, idxs)

    return counted


def _timed(infer: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        _check_time()
        return infer(*given, **named)

    return timed


MAP_AXES = 4
"""Of what is flattened: samples, channels, height, width."""
VECTOR_AXES = 2
"""Of what it becomes. Tokens, (samples, channels, places), keep their channels: torch-pruning reads them right."""


_update: Callable[[Any], None] = index_mapping.update_index_mapping


def install_corrections() -> None:
    """Let torch-pruning put every graph right when it has worked it out."""

    def update(graph: Any) -> None:
        _update(graph)
        put_right(graph)

    index_mapping.update_index_mapping = update


def put_right(graph: Any) -> None:
    """Correct where a dependency graph holds the channels of flattened parts of a concatenation, in place.

    torch-pruning 1.6 takes the width behind the concatenation for that of the flattened part, so it counts each channel
    more than once. What a channel really becomes is height times width places. It works its graph out anew for every
    group, so what puts it right is part of that, from `install` on.
    """
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
