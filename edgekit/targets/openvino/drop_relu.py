"""ReLUs of an int8 model that stand before FakeQuantize alone, whose range begins at zero or above: it clamps alike.

Each costs a layer and an edge in the .xml, 180 bytes. The plug-in fuses them with the convolution before. Without
them it fuses the FakeQuantize alone, and the answers are the same bits.
"""

from __future__ import annotations

from typing import Any

LOW = 1
"""The input of a FakeQuantize that holds the lower end of its range."""


def drop(model: Any) -> int:
    """Let what takes such a ReLU take what the ReLU takes, in place; how many went.

    One that a result takes, or anything but a FakeQuantize, stays.
    """
    dropped = 0
    for op in model.get_ordered_ops():
        if op.get_type_name() != "Relu":
            continue
        takers = list(op.output(0).get_target_inputs())
        if takers and all(_clamps(taker) for taker in takers):
            for taker in takers:
                taker.replace_source_output(op.input_value(0))
            dropped += 1
    return dropped


def _clamps(taker: Any) -> bool:
    """Whether an input is the first of a FakeQuantize that gives the same for everything below zero."""
    quantize = taker.get_node()
    if quantize.get_type_name() != "FakeQuantize" or taker.get_index() != 0:
        return False
    low, high = (quantize.input_value(place).get_node() for place in (LOW, LOW + 1))
    if low.get_type_name() != "Constant" or high.get_type_name() != "Constant":
        return False
    return bool((low.get_data() >= 0).all() and (high.get_data() > low.get_data()).all())
