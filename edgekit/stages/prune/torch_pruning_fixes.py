"""Workarounds for two faults of torch-pruning 1.6: searches that never end, and widths that it counts twice."""

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

MIN_CHANNELS, CHANNELS_PER_WIDTH = 1 << 13, 4
"""A layer may have at most `MIN_CHANNELS` indices in a group, or `CHANNELS_PER_WIDTH` times the width of the widest
layer if that is more."""
MIN_VISITS, VISITS_PER_LAYER = 500, 10
"""The search for one group may take `MIN_VISITS` steps, or `VISITS_PER_LAYER` for each layer if that is more."""
LIMIT_S = 120.0
"""Longest time of the code inside `search_limits`, in seconds."""

_limits: list[tuple[float, float, float]] = [(math.inf, math.inf, math.inf)]
"""Stack of limits, the innermost last: deadline in monotonic seconds, indices of a layer, and steps of a search."""


class CyclicGroupError(ValueError):
    """The search for one group of channels would never end."""


class SearchTimeout(Exception):
    """The search for groups of channels took longer than the time limit."""


@contextmanager
def search_limits(module: nn.Module, seconds: float = LIMIT_S) -> Iterator[None]:
    """Limit the search for groups of channels in this network.

    If a network has an `nn.LocalResponseNorm` before a flattening, torch-pruning 1.6 follows a cycle in its graph,
    multiplies the indices in each round and fills the memory. The groups of a real network stay far below these limits.

    Raises
    ------
    SearchTimeout
        The search took longer than `seconds`.
    CyclicGroupError
        A group grew beyond the limits.
    """
    widest = max((side for each in module.parameters() for side in each.shape), default=1)
    channels = max(MIN_CHANNELS, CHANNELS_PER_WIDTH * widest)
    visits = max(MIN_VISITS, VISITS_PER_LAYER * sum(1 for _ in module.modules()))
    _limits.append((time.monotonic() + seconds, channels, visits))
    try:
        yield
    finally:
        _limits.pop()


def install_limits() -> None:
    """Make torch-pruning check the limits. Calling this again has no effect."""
    if graph.Group is _Group:
        return
    graph.Group = _Group
    index_mapping._FlattenIndexMapping.__call__ = _with_size_limit(index_mapping._FlattenIndexMapping.__call__)
    for name in ("infer_out_channels_recursively", "infer_in_channels_recursively"):
        setattr(shape_infer, name, _with_time_limit(getattr(shape_infer, name)))


def _check_time() -> None:
    if time.monotonic() > _limits[-1][0]:
        raise SearchTimeout("its groups of channels were not found in time")


def _cyclic_group_error() -> CyclicGroupError:
    return CyclicGroupError("torch-pruning's graph of channels has a cycle")


class _Group(graph.Group):
    def add_dep(self, dep: Any, idxs: Any) -> None:
        _check_time()
        if len(self) >= _limits[-1][2] or len(idxs) > _limits[-1][1]:
            raise _cyclic_group_error()
        super().add_dep(dep, idxs)


def _with_size_limit(mapping: Callable[..., Any]) -> Callable[..., Any]:
    def limited(self: Any, idxs: Any) -> Any:
        if not self.reverse and len(idxs) * self._stride > _limits[-1][1]:
            raise _cyclic_group_error()
        return mapping(self, idxs)

    return limited


def _with_time_limit(infer: Callable[..., Any]) -> Callable[..., Any]:
    def limited(*args: Any, **kwargs: Any) -> Any:
        _check_time()
        return infer(*args, **kwargs)

    return limited


MAP_AXES = 4
"""Number of axes of a tensor before flattening: samples, channels, height, width."""
VECTOR_AXES = 2
"""Number of axes after flattening. Tokens have a third axis (samples, channels, positions) and need no correction."""


_update: Callable[[Any], None] = index_mapping.update_index_mapping


def install_corrections() -> None:
    """Make torch-pruning correct every dependency graph right after it has built it."""

    def update(graph: Any) -> None:
        _update(graph)
        correct_concat_widths(graph)

    index_mapping.update_index_mapping = update


def correct_concat_widths(graph: Any) -> None:
    """Correct the channel indices of flattened parts of a concatenation in a dependency graph, in place.

    Flattening turns each channel of a feature map into height times width indices. torch-pruning 1.6 computes this
    number from the width after the concatenation instead of the width of the flattened part, and so counts each channel
    more than once. It builds its graph anew for every group, so `install_corrections` hooks this function into the
    building of the graph.
    """
    for node in graph.module2node.values():
        if node.type != ops.OPTYPE.CONCAT or _axes(node) != VECTOR_AXES:
            continue
        flattened = {index: _flattening(part) for index, part in enumerate(node.inputs)}
        if not any(flattened.values()):
            continue
        for each in filter(None, flattened.values()):
            _set_index_mapping(each, _indices_per_channel(each))
        widths = [index_mapping.shape_infer.infer_channels_between(graph, part, node) for part in node.inputs]
        if None not in widths:
            factors = [_indices_per_channel(each) if each else 1 for each in flattened.values()]
            node.module.concat_sizes = [width * factor for width, factor in zip(widths, factors, strict=True)]
            index_mapping.update_concat_index_mapping(graph, node)


def _flattening(node: Any) -> Any:
    """Return the node that flattens a feature map before `node`, skipping elementwise operations, or None."""
    while node.type == ops.OPTYPE.ELEMENTWISE and len(node.inputs) == 1:
        node = node.inputs[0]
    sizes = getattr(node.grad_fn, "_saved_self_sym_sizes", ())
    is_flattening = node.type == ops.OPTYPE.RESHAPE and len(sizes) == MAP_AXES and _axes(node) == VECTOR_AXES
    return node if is_flattening else None


def _axes(node: Any) -> int:
    """Return the number of axes of the node's output."""
    return len(node.grad_fn._input_metadata[0].shape)  # inputs of the backward function are the outputs of the node


def _indices_per_channel(node: Any) -> int:
    """Return the number of indices that each channel becomes: height times width."""
    return prod(node.grad_fn._saved_self_sym_sizes[2:])


def _set_index_mapping(node: Any, stride: int) -> None:
    def mapping(reverse: bool) -> Any:
        return index_mapping._FlattenIndexMapping(stride=stride, reverse=reverse) if stride > 1 else None

    for before in node.inputs:
        for source, target, reverse in ((node, before, True), (before, node, False)):
            for dependency in source.dependencies:
                if dependency.target is target:
                    dependency.index_mapping[0] = mapping(reverse)
