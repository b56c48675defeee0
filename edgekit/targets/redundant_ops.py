"""Redundant operators that a converter left in a graph, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from edgekit.core.schema.variants import RedundantOp

MIN_COPY_BYTES = 64
"""Of smaller constants (axes, shapes, a few scales) copies are not counted."""


@dataclass(frozen=True)
class RedundantOperator:
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


def find_redundant(graph: OperatorGraph, compiled: bool = False) -> tuple[RedundantOperator, ...]:
    """Operators in order of execution, then copies of constants.

    Of a `compiled` graph not what is made of constants alone: that was computed while it was compiled.
    """
    found = []
    for op in graph.operators:
        kind = _kind(graph, op)
        if kind is not None and not (compiled and kind == "foldable"):
            found.append(RedundantOperator(kind, op.name, graph.where(op), graph.moved_bytes(op), compiled))
    return (*found, *(() if compiled else _copies(graph)))


def _kind(graph: OperatorGraph, op: GraphOperator) -> RedundantOp | None:
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


def _alone_before(graph: OperatorGraph, op: GraphOperator) -> GraphOperator | None:
    """The operator before, if nothing else reads what it makes."""
    makers = [graph.makers[key] for key in graph.data(op) if key in graph.makers]
    alone = len(makers) == 1 and sum(len(graph.takers.get(key, ())) for key in makers[0].outputs) == 1
    return makers[0] if alone and not set(makers[0].outputs) & set(graph.outputs) else None


def _keeps_shape(graph: OperatorGraph, op: GraphOperator) -> bool:
    given, made = graph.tensor(graph.data(op)[0]).shape, graph.tensor(op.outputs[0]).shape
    return bool(made) and given == made


def _needless_cast(graph: OperatorGraph, op: GraphOperator, before: GraphOperator | None) -> bool:
    if op.role == "cast":
        given, made = graph.tensor(graph.data(op)[0]).dtype, graph.tensor(op.outputs[0]).dtype
        return (bool(made) and given == made) or bool(before and before.role == "cast")
    if not graph.simulated:
        return not graph.outer(op)
    # in a simulation a quantize belongs to what stands before it, unless that was quantized already
    return bool(op.role == "quantize" and before and before.role in ("quantize", "dequantize"))


def _neutral(graph: OperatorGraph, op: GraphOperator) -> bool:
    if op.neutral is None or len(op.inputs) != 2:
        return False
    value = graph.tensor(op.inputs[1]).value
    given, made = (graph.tensor(key).shape for key in (op.inputs[0], op.outputs[0]))
    return value is not None and value.size > 0 and given == made and bool(np.all(value == op.neutral))


def _copies(graph: OperatorGraph) -> Iterator[RedundantOperator]:
    first: dict[tuple[Any, ...], Any] = {}
    for key, tensor in graph.tensors.items():
        takers = graph.takers.get(key, ())
        if tensor.value is None or tensor.bytes < MIN_COPY_BYTES or not takers:
            continue
        same = first.setdefault((tensor.dtype, tensor.shape, tensor.value.tobytes()), tensor.stored)
        if same != tensor.stored:
            layers = ", ".join(dict.fromkeys(taker.layer for taker in takers))
            yield RedundantOperator("copy", "constant", layers, tensor.bytes)


Role = Literal[
    "compute", "transpose", "reshape", "quantize", "dequantize", "cast", "identity", "pad", "broadcast", "shape"
]
"""What an operator does. `compute` is never redundant by itself; `shape` asks for a tensor's shape."""

MOVING = ("transpose", "reshape", "quantize", "dequantize", "cast", "identity")
"""Roles that carry the same numbers on: what has only these between itself and an end of the graph lies outside."""


@dataclass(frozen=True)
class GraphTensor:
    """`shape` is () where the format does not tell it. `value` only for constants, `stored` where their bytes lie."""

    shape: tuple[int, ...] = ()
    bytes: int = 0
    dtype: str = ""
    value: np.ndarray | None = None
    stored: Any = None


@dataclass(frozen=True)
class GraphOperator:
    """One operator; `inputs` and `outputs` are keys of tensors, `layer` the module of the network that it came from.

    `moves`: a transpose that changes the order of numbers in memory; `absorbable`: a pad that the operator behind it
    could do by itself; `elementwise`: it broadcasts its inputs by itself; `neutral`: the number that changes nothing
    as its second input (0 to be added).
    """

    role: Role
    name: str
    layer: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    moves: bool = False
    absorbable: bool = False
    elementwise: bool = False
    neutral: float | None = None


def changes_memory_order(before: Sequence[int], behind: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether axes in another order mean numbers in another order: axes of 1 do not count; `shape` is by axis."""
    real = [[axis for axis in order if axis >= len(shape) or shape[axis] != 1] for order in (before, behind)]
    return real[0] != real[1]


@dataclass(frozen=True)
class OperatorGraph:
    """Operators in order of execution.

    `simulated`: a quantize with its dequantize is a notation (ONNX's QDQ, OpenVINO's FakeQuantize), no work.
    """

    operators: Sequence[GraphOperator]
    tensors: dict[Any, GraphTensor]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    simulated: bool = False

    def tensor(self, key: Any) -> GraphTensor:
        """An unknown one is a tensor of no known shape."""
        return self.tensors.get(key, GraphTensor())

    def data(self, op: GraphOperator) -> list[Any]:
        """The inputs that are no constants, folded ones included."""
        return [key for key in op.inputs if key not in self.known]

    def moved_bytes(self, op: GraphOperator) -> int:
        """What the operator reads and writes, constants that it reads apart."""
        return sum(self.tensor(key).bytes for key in (*self.data(op), *op.outputs))

    @cached_property
    def makers(self) -> dict[Any, GraphOperator]:
        """The operator that makes each tensor."""
        return {key: op for op in self.operators for key in op.outputs}

    @cached_property
    def takers(self) -> dict[Any, list[GraphOperator]]:
        """The operators that read each tensor."""
        found: dict[Any, list[GraphOperator]] = {}
        for op in self.operators:
            for key in op.inputs:
                found.setdefault(key, []).append(op)
        return found

    @cached_property
    def known(self) -> set[Any]:
        """Tensors that no input of the graph changes: constants, what is made of them, shapes."""
        found = {key for key, tensor in self.tensors.items() if tensor.value is not None}
        for op in self.operators:
            if op.role == "shape" or (op.inputs and all(key in found for key in op.inputs)):
                found.update(op.outputs)
        return found

    @cached_property
    def packed(self) -> set[Any]:
        """Constants that are stored small and widened on use (fp16, int8), and what is made of them: a format's way."""
        found: set[Any] = set()
        for op in self.operators:
            if op.inputs and all(key in self.known for key in op.inputs):
                widens = op.role in ("dequantize", "quantize", "cast")
                if widens or any(key in found for key in op.inputs):
                    found.update(op.outputs)
        return found

    def outer(self, op: GraphOperator) -> bool:
        """Whether it stands at an input or an output, but for others that only carry numbers on."""
        return all(key in self._near_inputs for key in self.data(op)) or all(
            key in self._near_outputs for key in op.outputs
        )

    @cached_property
    def _near_inputs(self) -> set[Any]:
        found = set(self.inputs)
        for op in self.operators:
            if op.role in MOVING and all(key in found for key in self.data(op)):
                found.update(op.outputs)
        return found

    @cached_property
    def _near_outputs(self) -> set[Any]:
        found = set(self.outputs)
        for op in reversed(self.operators):
            if op.role in MOVING and all(key in found for key in op.outputs):
                found.update(key for key in self.data(op) if all(taker is op for taker in self.takers[key]))
        return found

    def where(self, op: GraphOperator) -> str:
        """`stem.0 → blocks.1.first`: the nearest layers that compute, before and behind."""
        return f"{self._before(op)} → {self._behind(op)}"

    def _before(self, op: GraphOperator) -> str:
        for _ in self.operators:
            maker = next((self.makers[key] for key in self.data(op) if key in self.makers), None)
            if maker is None:
                return "input"
            if maker.role == "compute":
                return maker.layer
            op = maker
        return op.layer

    def _behind(self, op: GraphOperator) -> str:
        for _ in self.operators:
            taker = next((taker for key in op.outputs for taker in self.takers.get(key, ())), None)
            if taker is None:
                return "output"
            if taker.role == "compute":
                return taker.layer
            op = taker
        return op.layer
