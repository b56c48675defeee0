"""A graph of operators in one form for all formats, for the rules of `redundant_ops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

Role = Literal[
    "compute", "transpose", "reshape", "quantize", "dequantize", "cast", "identity", "pad", "broadcast", "shape"
]
"""What an operator does. `compute` is never redundant by itself; `shape` asks for a tensor's shape."""

MOVING = ("transpose", "reshape", "quantize", "dequantize", "cast", "identity")
"""Roles that carry the same numbers on: what has only these between itself and an end of the graph lies outside."""


@dataclass(frozen=True)
class Tensor:
    """`shape` is () where the format does not tell it. `value` only for constants, `stored` where their bytes lie."""

    shape: tuple[int, ...] = ()
    bytes: int = 0
    dtype: str = ""
    value: np.ndarray | None = None
    stored: Any = None


@dataclass(frozen=True)
class Operator:
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


def moves(before: Sequence[int], behind: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether axes in another order mean numbers in another order: axes of 1 do not count; `shape` is by axis."""
    real = [[axis for axis in order if axis >= len(shape) or shape[axis] != 1] for order in (before, behind)]
    return real[0] != real[1]


@dataclass(frozen=True)
class Graph:
    """Operators in order of execution.

    `simulated`: a quantize with its dequantize is a notation (ONNX's QDQ, OpenVINO's FakeQuantize), no work.
    """

    operators: Sequence[Operator]
    tensors: dict[Any, Tensor]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    simulated: bool = False

    def tensor(self, key: Any) -> Tensor:
        """An unknown one is a tensor of no known shape."""
        return self.tensors.get(key, Tensor())

    def data(self, op: Operator) -> list[Any]:
        """The inputs that are no constants, folded ones included."""
        return [key for key in op.inputs if key not in self.known]

    def moved_bytes(self, op: Operator) -> int:
        """What the operator reads and writes, constants that it reads apart."""
        return sum(self.tensor(key).bytes for key in (*self.data(op), *op.outputs))

    @cached_property
    def makers(self) -> dict[Any, Operator]:
        """The operator that makes each tensor."""
        return {key: op for op in self.operators for key in op.outputs}

    @cached_property
    def takers(self) -> dict[Any, list[Operator]]:
        """The operators that read each tensor."""
        found: dict[Any, list[Operator]] = {}
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

    def outer(self, op: Operator) -> bool:
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

    def where(self, op: Operator) -> str:
        """`stem.0 → blocks.1.first`: the nearest layers that compute, before and behind."""
        return f"{self._before(op)} → {self._behind(op)}"

    def _before(self, op: Operator) -> str:
        for _ in self.operators:
            maker = next((self.makers[key] for key in self.data(op) if key in self.makers), None)
            if maker is None:
                return "input"
            if maker.role == "compute":
                return maker.layer
            op = maker
        return op.layer

    def _behind(self, op: Operator) -> str:
        for _ in self.operators:
            taker = next((taker for key in op.outputs for taker in self.takers.get(key, ())), None)
            if taker is None:
                return "output"
            if taker.role == "compute":
                return taker.layer
            op = taker
        return op.layer
