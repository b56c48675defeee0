"""Limits of torch-pruning's search for groups: where its graph of channels runs in a circle, it would never end.

Behind `nn.LocalResponseNorm` and a flattening, torch-pruning 1.6 takes each channel for several places of the next
layer on every round of such a circle, and fills the memory. A group of a real network stays far below these limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch_pruning.dependency import graph, index_mapping, shape_infer

MOST_CHANNELS = 1 << 18
"""Channels, or places that channels become, of one layer in a group."""
MOST_LAYERS = 50_000
"""Layers in a group, each counted once for every way to it."""
LIMIT_S = 120.0
"""Longest time of what `limited` encloses."""

_ends: list[float] = []
"""When each enclosing search must have ended."""


class InCircle(ValueError):
    """One group has no end."""


class OutOfTime(Exception):
    """The search was given up."""


@contextmanager
def limited(seconds: float = LIMIT_S) -> Iterator[None]:
    """Inside, a search for groups that takes longer ends in OutOfTime."""
    _ends.append(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.pop()


def install() -> None:
    """Put the limits into torch-pruning; once more changes nothing."""
    if graph.Group is _Group:
        return
    graph.Group = _Group
    index_mapping._FlattenIndexMapping.__call__ = _counted(index_mapping._FlattenIndexMapping.__call__)
    for name in ("infer_out_channels_recursively", "infer_in_channels_recursively"):
        setattr(shape_infer, name, _timed(getattr(shape_infer, name)))


def _check_time() -> None:
    if _ends and time.monotonic() > min(_ends):
        raise OutOfTime("its groups of channels were not found in time")


def _circle() -> InCircle:
    return InCircle("torch-pruning's graph of its channels runs in a circle")


class _Group(graph.Group):  # type: ignore[misc]
    def add_dep(self, dep: Any, idxs: Any) -> None:
        _check_time()
        if len(self) >= MOST_LAYERS or len(idxs) > MOST_CHANNELS:
            raise _circle()
        super().add_dep(dep, idxs)


def _counted(mapping: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, idxs: Any) -> Any:
        if not self.reverse and len(idxs) * self._stride > MOST_CHANNELS:
            raise _circle()
        return mapping(self, idxs)

    return counted


def _timed(infer: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        _check_time()
        return infer(*given, **named)

    return timed
