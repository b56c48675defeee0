"""Changes of an OpenVINO model that its int8 kernels, or samples that enter as bytes, need."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.runner.backends import byte_inputs
from edgekit.targets.fold_preprocess import Affine

LOW = 1
"""The input of a FakeQuantize that holds the lower end of its range."""


def drop_relus(model: Any) -> int:
    """Let what takes such a ReLU take what the ReLU takes, in place; how many went.

    One that a result takes, or anything but a FakeQuantize, stays.

    Each costs a layer and an edge in the .xml, 180 bytes. The plug-in fuses them with the convolution before. Without
    them it fuses the FakeQuantize alone, and the answers are the same bits.
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


SCALES = ("Multiply", "Add")
ACTIVATIONS = ("Relu", "Clamp")
"""What is fused before a scale; behind other activations the plug-in does not fuse it."""
DENSE_RANK = 2
"""Axes of a dense layer's output, (N, channels); one that is applied along a sequence has more, and is right."""


def separate_scales(model: Any) -> int:
    """Put a PReLU of slope one before each scale or shift of a dense layer's outputs, in place; how many there are.

    A batch norm behind a dense layer's ReLU is such a scale and shift, and so are a layer scale and a constant that is
    added. Where a FakeQuantize follows, OpenVINO 2026.4 fuses all of it into the dense layer, and on one thread the
    answers are garbage (-85 to -200 dB; 36 to 50 dB on two threads, or parted). An operator that computes nothing keeps
    them apart: a PReLU with a slope of one, which the plug-in neither fuses there nor removes. It works in every
    source's graph and behind ranges that QAT learnt, where weights may no longer change. Folded into the next dense
    layer instead, the scale of a channel that is always zero (1 / sqrt(eps) = 316) would take up that layer's range of
    weights. Maps and sequences are right as they are.
    """
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


HALVED = "not folded: fp16 would halve the numbers of the steps"


def take_raw_bytes(model: Any, found: Affine | str, layout: str, precision: str) -> tuple[Any, str]:
    """The model that takes bytes, or as it is, and what became of the steps, in words.

    Parameters
    ----------
    model
        An `openvino.Model`, which may be changed.
    found
        The steps, or why they cannot be folded, from `fold_preprocess.by_channel`.
    layout
        Of its input, such as NCHW.
    precision
        What it is to be saved as.

    The plug-in computes them before the first convolution, channel by channel: of a picture of 32 x 32 in less time
    than the runner needs to look its bytes up. The file says of itself what it makes of a byte (`byte_inputs`).
    """
    from openvino import Layout, Type
    from openvino.preprocess import PrePostProcessor

    if isinstance(found, str):
        return model, f"not folded: {found}"
    if len(model.inputs) != 1 or model.input(0).element_type != Type.f32:
        return (
            model,
            f"not folded: the file has {len(model.inputs)} inputs, of {model.input(0).element_type.to_string()}",
        )
    if precision == "fp16":
        return model, HALVED
    channels = len(found.scale)
    if channels > 1 and layout not in ("NCHW", "NHWC"):
        return model, f"not folded: the input's layout is {layout}"
    processor = PrePostProcessor(model)
    taken = processor.input(0)
    taken.tensor().set_element_type(Type.u8)
    steps = taken.preprocess().convert_element_type(Type.f32)
    mean, scale = (-found.shift.astype("float64") / found.scale).tolist(), (1 / found.scale.astype("float64")).tolist()
    if channels > 1:
        taken.tensor().set_layout(Layout(layout))
        taken.model().set_layout(Layout(layout))
        steps.mean(mean).scale(scale)
    else:
        steps.mean(mean[0]).scale(scale[0])
    model = processor.build()
    model.set_rt_info(byte_inputs.format_remark(found.scale.tolist(), found.shift.tolist()), [byte_inputs.METADATA_KEY])
    said = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    return model, f"folded: the input takes bytes, {said}"
