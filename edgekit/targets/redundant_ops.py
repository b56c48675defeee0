"""Find redundant operators that a converter left in a graph, and say of what kind they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from edgekit.core.schema.variants import RedundantOp

MIN_COPY_BYTES = 64
"""Copies of smaller constants (axes, shapes, a few scales) are not counted."""


@dataclass(frozen=True)
class RedundantOperator:
    """An operator or a copy of a constant that a converter left behind.

    `where` names the layers around it. `moved_bytes` is what it reads and writes, or the size of a copy. `compiled`
    means that it is not in the file, but in the graph that the interpreter compiled from it on this machine.
    """

    kind: RedundantOp
    operator: str
    where: str
    moved_bytes: int
    compiled: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_redundant(graph: OperatorGraph, compiled: bool = False) -> tuple[RedundantOperator, ...]:
    """Return the redundant operators in order of execution, then the copies of constants.

    In a `compiled` graph, operators that depend on constants only are not counted, because they were computed when the
    graph was compiled. Copies are not counted either, because a compiled model does not expose its constants.
    """
    redundant = []
    for op in graph.operators:
        kind = _kind(graph, op)
        if kind is not None and not (compiled and kind == "foldable"):
            redundant.append(RedundantOperator(kind, op.name, graph.where(op), graph.moved_bytes(op), compiled))
    return (*redundant, *(() if compiled else _copies(graph)))


def _kind(graph: OperatorGraph, op: GraphOperator) -> RedundantOp | None:
    if any(key in graph.packed for key in op.outputs):
        return None
    if op.outputs and all(key in graph.constant_keys for key in op.outputs):
        return "foldable"
    before = _alone_before(graph, op)
    if op.role == "transpose":
        if not op.moves:
            return "reshape"
        return "outer transpose" if graph.is_outer(op) else "transpose"
    if op.role == "reshape":
        return "reshape" if _keeps_shape(graph, op) or (before and before.role == "reshape") else None
    if op.role in ("quantize", "dequantize", "cast"):
        return "cast" if _needless_cast(graph, op, before) else None
    if op.role == "identity" or _neutral(graph, op):
        return "identity"
    if op.role == "pad":
        return "pad" if op.absorbable else None
    if op.role == "broadcast":
        consumers = [consumer for key in op.outputs for consumer in graph.consumers.get(key, ())]
        return "broadcast" if consumers and all(consumer.elementwise for consumer in consumers) else None
    return None


def _alone_before(graph: OperatorGraph, op: GraphOperator) -> GraphOperator | None:
    """Return the operator before `op` if nothing else reads its output, else None."""
    producers = [graph.producers[key] for key in graph.data(op) if key in graph.producers]
    alone = len(producers) == 1 and sum(len(graph.consumers.get(key, ())) for key in producers[0].outputs) == 1
    return producers[0] if alone and not set(producers[0].outputs) & set(graph.outputs) else None


def _keeps_shape(graph: OperatorGraph, op: GraphOperator) -> bool:
    before, after = graph.tensor(graph.data(op)[0]).shape, graph.tensor(op.outputs[0]).shape
    return bool(after) and before == after


def _needless_cast(graph: OperatorGraph, op: GraphOperator, before: GraphOperator | None) -> bool:
    if op.role == "cast":
        source, result = graph.tensor(graph.data(op)[0]).dtype, graph.tensor(op.outputs[0]).dtype
        return (bool(result) and source == result) or bool(before and before.role == "cast")
    if not graph.simulated:
        return not graph.is_outer(op)
    # in a simulation, a quantize belongs to the operator before it, unless the values were quantized already
    return bool(op.role == "quantize" and before and before.role in ("quantize", "dequantize"))


def _neutral(graph: OperatorGraph, op: GraphOperator) -> bool:
    if op.neutral is None or len(op.inputs) != 2:
        return False
    value = graph.tensor(op.inputs[1]).value
    before, after = (graph.tensor(key).shape for key in (op.inputs[0], op.outputs[0]))
    return value is not None and value.size > 0 and before == after and bool(np.all(value == op.neutral))


def _copies(graph: OperatorGraph) -> Iterator[RedundantOperator]:
    first: dict[tuple[Any, ...], Any] = {}
    for key, tensor in graph.tensors.items():
        consumers = graph.consumers.get(key, ())
        if tensor.value is None or tensor.bytes < MIN_COPY_BYTES or not consumers:
            continue
        same = first.setdefault((tensor.dtype, tensor.shape, tensor.value.tobytes()), tensor.stored)
        if same != tensor.stored:
            layers = ", ".join(dict.fromkeys(consumer.layer for consumer in consumers))
            yield RedundantOperator("copy", "constant", layers, tensor.bytes)


Role = Literal[
    "compute", "transpose", "reshape", "quantize", "dequantize", "cast", "identity", "pad", "broadcast", "shape"
]
"""What an operator does. `compute` is never redundant by itself, and `shape` returns a tensor's shape."""

MOVING = ("transpose", "reshape", "quantize", "dequantize", "cast", "identity")
"""Roles of operators that pass the same numbers on. An operator is outer if only such operators lie between it and the
inputs or outputs of the graph."""


@dataclass(frozen=True)
class GraphTensor:
    """A tensor of a graph.

    `shape` is () if the format does not state it. Constants have their `value`, and in `stored` the address of their
    bytes.
    """

    shape: tuple[int, ...] = ()
    bytes: int = 0
    dtype: str = ""
    value: np.ndarray | None = None
    stored: Any = None


@dataclass(frozen=True)
class GraphOperator:
    """An operator of a graph.

    Attributes
    ----------
    layer
        The module of the network from which the operator came.
    inputs, outputs
        Keys of tensors.
    moves
        Whether it is a transpose that changes the order of the numbers in memory.
    absorbable
        Whether it is a pad that the operator after it could do by itself.
    elementwise
        Whether it is an elementwise operator, which broadcasts its inputs by itself.
    neutral
        The number that has no effect as its second input, for example 0 for an addition.
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


def changes_memory_order(before: Sequence[int], after: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether another order of the axes changes the order of the numbers; axes of size 1 do not count.

    `shape` has the size of each axis.
    """
    orders = [[axis for axis in order if axis >= len(shape) or shape[axis] != 1] for order in (before, after)]
    return orders[0] != orders[1]


@dataclass(frozen=True)
class OperatorGraph:
    """A graph with its operators in order of execution.

    `simulated` means that a quantize with its dequantize only marks quantized values, as ONNX's QDQ and OpenVINO's
    FakeQuantize do, and is not executed.
    """

    operators: Sequence[GraphOperator]
    tensors: dict[Any, GraphTensor]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    simulated: bool = False

    def tensor(self, key: Any) -> GraphTensor:
        """Return a tensor by its key; an unknown one has no shape."""
        return self.tensors.get(key, GraphTensor())

    def data(self, op: GraphOperator) -> list[Any]:
        """Return the inputs that are not constants and do not depend on constants only."""
        return [key for key in op.inputs if key not in self.constant_keys]

    def moved_bytes(self, op: GraphOperator) -> int:
        """Return the bytes that the operator reads and writes, without the constants that it reads."""
        return sum(self.tensor(key).bytes for key in (*self.data(op), *op.outputs))

    @cached_property
    def producers(self) -> dict[Any, GraphOperator]:
        """The operator that computes each tensor."""
        return {key: op for op in self.operators for key in op.outputs}

    @cached_property
    def consumers(self) -> dict[Any, list[GraphOperator]]:
        """The operators that read each tensor."""
        consumers: dict[Any, list[GraphOperator]] = {}
        for op in self.operators:
            for key in op.inputs:
                consumers.setdefault(key, []).append(op)
        return consumers

    @cached_property
    def constant_keys(self) -> set[Any]:
        """Tensors that do not depend on the inputs: constants, results of constants, and shapes."""
        constant = {key for key, tensor in self.tensors.items() if tensor.value is not None}
        for op in self.operators:
            if op.role == "shape" or (op.inputs and all(key in constant for key in op.inputs)):
                constant.update(op.outputs)
        return constant

    @cached_property
    def packed(self) -> set[Any]:
        """Tensors computed by widening constants of a small type (fp16, int8), or computed from such tensors."""
        packed: set[Any] = set()
        for op in self.operators:
            if op.inputs and all(key in self.constant_keys for key in op.inputs):
                widens = op.role in ("dequantize", "quantize", "cast")
                if widens or any(key in packed for key in op.inputs):
                    packed.update(op.outputs)
        return packed

    def is_outer(self, op: GraphOperator) -> bool:
        """Return whether only operators that pass numbers on lie between the operator and the inputs or outputs."""
        return all(key in self._near_inputs for key in self.data(op)) or all(
            key in self._near_outputs for key in op.outputs
        )

    @cached_property
    def _near_inputs(self) -> set[Any]:
        near = set(self.inputs)
        for op in self.operators:
            if op.role in MOVING and all(key in near for key in self.data(op)):
                near.update(op.outputs)
        return near

    @cached_property
    def _near_outputs(self) -> set[Any]:
        near = set(self.outputs)
        for op in reversed(self.operators):
            if op.role in MOVING and all(key in near for key in op.outputs):
                near.update(key for key in self.data(op) if all(consumer is op for consumer in self.consumers[key]))
        return near

    def where(self, op: GraphOperator) -> str:
        """Return the nearest layers that compute before and after `op`, for example `stem.0 → blocks.1.first`."""
        return f"{self._before(op)} → {self._after(op)}"

    def _before(self, op: GraphOperator) -> str:
        for _ in self.operators:
            producer = next((self.producers[key] for key in self.data(op) if key in self.producers), None)
            if producer is None:
                return "input"
            if producer.role == "compute":
                return producer.layer
            op = producer
        return op.layer

    def _after(self, op: GraphOperator) -> str:
        for _ in self.operators:
            consumer = next((consumer for key in op.outputs for consumer in self.consumers.get(key, ())), None)
            if consumer is None:
                return "output"
            if consumer.role == "compute":
                return consumer.layer
            op = consumer
        return op.layer
