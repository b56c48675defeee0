"""Limits of torch-pruning's search for groups: where its graph of channels runs in a circle, it would never end.

Behind `nn.LocalResponseNorm` and a flattening, torch-pruning 1.6 takes each channel for several places of the next
layer on every round of such a circle, and fills the memory. A group of a real network stays far below these limits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
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
    """Inside, a search for groups of this network that takes longer ends in OutOfTime, one without end in InCircle."""
    widest = max((side for each in module.parameters() for side in each.shape), default=1)
    channels = max(LEAST, TIMES_AS_MANY * widest)
    visits = max(MOST_VISITS, VISITS_PER_LAYER * sum(1 for _ in module.modules()))
    _limits.append((time.monotonic() + seconds, channels, visits))
    try:
        yield
    finally:
        _limits.pop()


def install() -> None:
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
