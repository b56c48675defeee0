"""Redundant operators that a converter left in a graph, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.targets.graph import Graph, Operator

if TYPE_CHECKING:
    from edgekit.core.schema.variants import RedundantOp

LEAST_COPY_BYTES = 64
"""Of smaller constants (axes, shapes, a few scales) copies are not counted."""


@dataclass(frozen=True)
class Finding:
    """One thing a converter left behind. `where` names the layers around it.

    `moved_bytes`: what it reads and writes, unless the interpreter sees through it; of a copy, its size. `compiled`:
    found in what the interpreter made of the file on this machine, not in the file.
    """

    kind: RedundantOp
    operator: str
    where: str
    moved_bytes: int
    compiled: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find(graph: Graph, compiled: bool = False) -> tuple[Finding, ...]:
    """Operators in order of execution, then copies of constants.

    Of a `compiled` graph not what is made of constants alone: that was computed while it was compiled.
    """
    found = []
    for op in graph.operators:
        kind = _kind(graph, op)
        if kind is not None and not (compiled and kind == "foldable"):
            found.append(Finding(kind, op.name, graph.where(op), graph.moved_bytes(op), compiled))
    return (*found, *(() if compiled else _copies(graph)))


def _kind(graph: Graph, op: Operator) -> RedundantOp | None:
    if any(key in graph.packed for key in op.outputs):
        return None
    if op.outputs and all(key in graph.known for key in op.outputs):
        return "foldable"
    before = _alone_before(graph, op)
    if op.role == "transpose":
        if not op.moves:
            return "reshape"
        return "outer transpose" if graph.outer(op) else "transpose"
    if op.role == "reshape":
        return "reshape" if _keeps_shape(graph, op) or (before and before.role == "reshape") else None
    if op.role in ("quantize", "dequantize", "cast"):
        return "cast" if _needless_cast(graph, op, before) else None
    if op.role == "identity" or _neutral(graph, op):
        return "identity"
    if op.role == "pad":
        return "pad" if op.absorbable else None
    if op.role == "broadcast":
        takers = [taker for key in op.outputs for taker in graph.takers.get(key, ())]
        return "broadcast" if takers and all(taker.elementwise for taker in takers) else None
    return None


def _alone_before(graph: Graph, op: Operator) -> Operator | None:
    """The operator before, if nothing else reads what it makes."""
    makers = [graph.makers[key] for key in graph.data(op) if key in graph.makers]
    alone = len(makers) == 1 and sum(len(graph.takers.get(key, ())) for key in makers[0].outputs) == 1
    return makers[0] if alone and not set(makers[0].outputs) & set(graph.outputs) else None


def _keeps_shape(graph: Graph, op: Operator) -> bool:
    given, made = graph.tensor(graph.data(op)[0]).shape, graph.tensor(op.outputs[0]).shape
    return bool(made) and given == made


def _needless_cast(graph: Graph, op: Operator, before: Operator | None) -> bool:
    if op.role == "cast":
        given, made = graph.tensor(graph.data(op)[0]).dtype, graph.tensor(op.outputs[0]).dtype
        return (bool(made) and given == made) or bool(before and before.role == "cast")
    if not graph.simulated:
        return not graph.outer(op)
    # in a simulation a quantize belongs to what stands before it, unless that was quantized already
    return bool(op.role == "quantize" and before and before.role in ("quantize", "dequantize"))


def _neutral(graph: Graph, op: Operator) -> bool:
    if op.neutral is None or len(op.inputs) != 2:
        return False
    value = graph.tensor(op.inputs[1]).value
    given, made = (graph.tensor(key).shape for key in (op.inputs[0], op.outputs[0]))
    return value is not None and value.size > 0 and given == made and bool(np.all(value == op.neutral))


def _copies(graph: Graph) -> Iterator[Finding]:
    first: dict[tuple[Any, ...], Any] = {}
    for key, tensor in graph.tensors.items():
        takers = graph.takers.get(key, ())
        if tensor.value is None or tensor.bytes < LEAST_COPY_BYTES or not takers:
            continue
        same = first.setdefault((tensor.dtype, tensor.shape, tensor.value.tobytes()), tensor.stored)
        if same != tensor.stored:
            layers = ", ".join(dict.fromkeys(taker.layer for taker in takers))
            yield Finding("copy", "constant", layers, tensor.bytes)
