"""Costs of a model that comes as a file, counted in the graph that OpenVINO reads from it."""

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
    """Costs of one call at batch 1; 0 if they could not be counted.

    Multiply-adds are those of convolutions, matrix products and recurrent layers. `weight_bytes` is the size of the
    weights as they are stored.
    """

    parameters: int = 0
    macs: int = 0
    weight_bytes: int = 0


def count_file(path: Path, kind: str) -> OpCount:
    """Count the costs of a model file; they are 0 if OpenVINO cannot read it."""
    try:
        model = module(kind).openvino(path)
    except Exception:  # the readers' errors have no common base class, and a missing count must not stop a run
        return OpCount()
    try:
        return count_graph(model)
    except RuntimeError:  # OpenVINO raises it if a shape is not fixed
        return OpCount()


def count_graph(model: Any) -> OpCount:
    """Count the costs of an `openvino.Model` whose shapes are all fixed."""
    operators = list(_operators(model))
    weights = [op for op, _ in operators if op.get_type_name() == "Constant" and _is_weight(op)]
    return OpCount(
        parameters=sum(prod(op.output(0).get_shape()) for op in weights),
        macs=sum(_macs(op) * times for op, times in operators),
        weight_bytes=sum(op.get_byte_size() for op in weights),
    )


def _operators(model: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield each operator and how often a call runs it, which in the body of a loop is the number of iterations."""
    for op in model.get_ordered_ops():
        yield op, times
        if op.get_type_name() in ("TensorIterator", "Loop"):
            yield from _operators(op.get_function(), times * max(op.get_num_iterations(), 1))


def _is_weight(op: Any) -> bool:
    """Return whether a constant holds numbers that are multiplied or added, not a shape, an axis or a range limit."""
    shape = op.output(0).get_shape()
    return op.get_element_type().to_string() in ("f32", "f16", "i8", "u8") and prod(shape) > 1


def _macs(op: Any) -> int:
    kind = op.get_type_name()
    if kind in ("Convolution", "GroupConvolution"):
        kernel = op.input(1).get_shape()  # (output, input, *window), or in groups (groups, output, input, *window)
        first_axis = 2 if kind == "GroupConvolution" else 1
        return int(prod(op.output(0).get_shape()) * prod(kernel[first_axis:]))
    if kind in ("ConvolutionBackpropData", "GroupConvolutionBackpropData"):
        kernel = op.input(1).get_shape()
        first_axis = 2 if kind.startswith("Group") else 1
        return int(prod(op.input(0).get_shape()) * prod(kernel[first_axis:]))
    if kind == "MatMul":
        inner = op.input(0).get_shape()[-2 if op.get_attributes()["transpose_a"] else -1]
        return int(prod(op.output(0).get_shape()) * inner)
    if kind in RECURRENT:
        *_, weights, recurrent, _bias = (port.get_shape() for port in op.inputs())
        *steps, _features = op.input(0).get_shape()  # (batch, time, features); a cell has (batch, features)
        return int(prod(steps) * (prod(weights) + prod(recurrent)))
    return 0
