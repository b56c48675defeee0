"""Scales and shifts behind an int8 dense layer, kept apart from it: OpenVINO's CPU plug-in computes them wrongly fused.

A batch norm behind a dense layer's ReLU is such a scale and shift, and so are a layer scale and a constant that is
added. Where a FakeQuantize follows, OpenVINO 2026.4 fuses all of it into the dense layer, and on one thread the answers
are garbage (-85 to -200 dB; 36 to 50 dB on two threads, or parted). An operator that computes nothing keeps them apart:
a PReLU with a slope of one, which the plug-in neither fuses there nor removes. It works in every source's graph and
behind ranges that QAT learnt, where weights may no longer change. Folded into the next dense layer instead, the scale
of a channel that is always zero (1 / sqrt(eps) = 316) would take up that layer's range of weights. Maps and sequences
are right as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SCALES = ("Multiply", "Add")
ACTIVATIONS = ("Relu", "Clamp")
"""What is fused before a scale; behind other activations the plug-in does not fuse it."""
DENSE_RANK = 2
"""Axes of a dense layer's output, (N, channels); one that is applied along a sequence has more, and is right."""


def part(model: Any) -> int:
    """Put a PReLU of slope one before each scale or shift of a dense layer's outputs, in place; how many there are."""
    from openvino import opset1

    parted = 0
    for op in model.get_ordered_ops():
        place = _other_input(op) if op.get_type_name() in SCALES else None
        if place is not None and _is_dense(op.input_value(place), op.get_type_name()):
            apart = opset1.prelu(op.input_value(place), opset1.constant(np.ones(1, np.float32)))
            op.input(place).replace_source_output(apart.output(0))
            parted += 1
    return parted


def _other_input(op: Any) -> int | None:
    """Which of its two inputs is computed, where the other is a constant."""
    constant = [port.get_node().get_type_name() == "Constant" for port in op.input_values()]
    return constant.index(False) if sorted(constant) == [False, True] else None


def _is_dense(port: Any, scale: str) -> bool:
    """Whether a dense layer gives this, by itself or through its bias and an activation; its bias is no shift."""
    op = port.get_node()
    activated = op.get_type_name() in ACTIVATIONS
    if activated:
        op = op.input_value(0).get_node()
    biased = op.get_type_name() == "Add" and (place := _other_input(op)) is not None
    if biased:
        op = op.input_value(place).get_node()
    dense = op.get_type_name() == "MatMul" and len(op.get_output_partial_shape(0)) == DENSE_RANK
    return dense and (activated or biased or scale == "Multiply")
