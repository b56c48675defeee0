"""What a model of another framework costs, counted in the graph that OpenVINO reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from edgekit.models.files import module

RECURRENT = ("RNNSequence", "RNNCell", "GRUSequence", "GRUCell", "LSTMSequence", "LSTMCell")


@dataclass(frozen=True)
class OpCount:
    """Of one call at batch 1; 0 where nothing could be counted. Weights in the number of bytes that they are stored in.

    Multiply-adds are those of convolutions, of matrix products and of recurrent layers.
    """

    parameters: int = 0
    macs: int = 0
    weight_bytes: int = 0


def count_file(path: Path, kind: str) -> OpCount:
    """Nothing where OpenVINO cannot read the model."""
    try:
        model = module(kind).openvino(path)
    except Exception:  # readers' errors share no class, and a count is no reason to refuse a model that runs
        return OpCount()
    try:
        return count_graph(model)
    except RuntimeError:  # OpenVINO's, where a shape is not fixed
        return OpCount()


def count_graph(model: Any) -> OpCount:
    """Of an `openvino.Model` whose shapes are all fixed."""
    operators = list(_operators(model))
    weights = [op for op, _ in operators if op.get_type_name() == "Constant" and _is_weight(op)]
    return OpCount(
        parameters=sum(prod(op.output(0).get_shape()) for op in weights),
        macs=sum(_macs(op) * times for op, times in operators),
        weight_bytes=sum(op.get_byte_size() for op in weights),
    )


def _operators(model: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Each with how often a call runs it: those in the body of a loop, as often as it turns."""
    for op in model.get_ordered_ops():
        yield op, times
        if op.get_type_name() in ("TensorIterator", "Loop"):
            yield from _operators(op.get_function(), times * max(op.get_num_iterations(), 1))


def _is_weight(op: Any) -> bool:
    """Numbers that are multiplied or added, not shapes, axes and borders of ranges."""
    shape = op.output(0).get_shape()
    return op.get_element_type().to_string() in ("f32", "f16", "i8", "u8") and prod(shape) > 1


def _macs(op: Any) -> int:
    kind = op.get_type_name()
    if kind in ("Convolution", "GroupConvolution"):
        kernel = op.input(1).get_shape()  # (output, input, *window), or in groups (groups, output, input, *window)
        behind = 2 if kind == "GroupConvolution" else 1
        return int(prod(op.output(0).get_shape()) * prod(kernel[behind:]))
    if kind in ("ConvolutionBackpropData", "GroupConvolutionBackpropData"):
        kernel = op.input(1).get_shape()
        behind = 2 if kind.startswith("Group") else 1
        return int(prod(op.input(0).get_shape()) * prod(kernel[behind:]))
    if kind == "MatMul":
        inner = op.input(0).get_shape()[-2 if op.get_attributes()["transpose_a"] else -1]
        return int(prod(op.output(0).get_shape()) * inner)
    if kind in RECURRENT:
        *_, weights, recurrent, _bias = (port.get_shape() for port in op.inputs())
        *steps, _features = op.input(0).get_shape()  # (batch, time, features), of a cell (batch, features)
        return int(prod(steps) * (prod(weights) + prod(recurrent)))
    return 0
