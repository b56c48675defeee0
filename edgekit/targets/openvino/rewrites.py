"""Rewrite an OpenVINO model as the int8 kernels need it, or so that it takes bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.runner.backends import byte_inputs
from edgekit.targets.fold_preprocess import Affine

LOW = 1
"""The index of the input of a FakeQuantize that has the lower limit of its range."""


def drop_relus(model: Any) -> int:
    """Remove ReLUs that are only followed by FakeQuantizes which clip negative values anyway; return how many.

    Such a ReLU takes 180 bytes in the .xml, for a layer and an edge. The plug-in fuses it and the FakeQuantize with the
    convolution before them. Without the ReLU, it fuses only the FakeQuantize, and the answers are the same bit for bit.
    """
    dropped = 0
    for op in model.get_ordered_ops():
        if op.get_type_name() != "Relu":
            continue
        consumers = list(op.output(0).get_target_inputs())
        if consumers and all(_clamps(consumer) for consumer in consumers):
            for consumer in consumers:
                consumer.replace_source_output(op.input_value(0))
            dropped += 1
    return dropped


def _clamps(consumer: Any) -> bool:
    """Return whether an input is the first of a FakeQuantize that maps all negative values to the same one."""
    quantize = consumer.get_node()
    if quantize.get_type_name() != "FakeQuantize" or consumer.get_index() != 0:
        return False
    low, high = (quantize.input_value(index).get_node() for index in (LOW, LOW + 1))
    if low.get_type_name() != "Constant" or high.get_type_name() != "Constant":
        return False
    return bool((low.get_data() >= 0).all() and (high.get_data() > low.get_data()).all())


SCALES = ("Multiply", "Add")
ACTIVATIONS = ("Relu", "Clamp")
"""Activations after which the plug-in fuses a scale."""
DENSE_RANK = 2
"""Number of axes of a dense layer's output, (N, channels). Layers along a sequence have more axes and are computed
correctly."""


def separate_scales(model: Any) -> int:
    """Insert a PReLU with slope one before each scale or shift of a dense layer's outputs, in place; return how many.

    Such scales and shifts come from a batch norm after a dense layer's ReLU, from a layer scale, or from an added
    constant. If a FakeQuantize follows, OpenVINO 2026.4 fuses everything into the dense layer, and on one thread the
    answers are wrong: their SNR is -85 to -200 dB. On two threads, or with the operators separated, it is 36 to 50 dB.

    A PReLU with slope one computes nothing, but the plug-in neither fuses nor removes a PReLU in that place, so the
    operators stay separate. This works for graphs from every source, and for networks after QAT, whose weights must not
    change any more. Folding the scale into the next dense layer would not work, because the scale of a channel that is
    always zero (1 / sqrt(eps) = 316) would use up that layer's range of weights. Feature maps and sequences need no
    separation, because they are computed correctly.
    """
    from openvino import opset1

    inserted = 0
    for op in model.get_ordered_ops():
        index = _computed_input(op) if op.get_type_name() in SCALES else None
        if index is not None and _is_dense(op.input_value(index), op.get_type_name()):
            separator = opset1.prelu(op.input_value(index), opset1.constant(np.ones(1, np.float32)))
            op.input(index).replace_source_output(separator.output(0))
            inserted += 1
    return inserted


def _computed_input(op: Any) -> int | None:
    """Return the index of the computed input if the other of the two inputs is a constant, else None."""
    constant = [port.get_node().get_type_name() == "Constant" for port in op.input_values()]
    return constant.index(False) if sorted(constant) == [False, True] else None


def _is_dense(port: Any, scale: str) -> bool:
    """Return whether a port is the output of a dense layer, perhaps after its bias and an activation.

    For an addition, a dense layer without a bias does not count, because the addition is its bias.
    """
    op = port.get_node()
    activated = op.get_type_name() in ACTIVATIONS
    if activated:
        op = op.input_value(0).get_node()
    biased = op.get_type_name() == "Add" and (index := _computed_input(op)) is not None
    if biased:
        op = op.input_value(index).get_node()
    dense = op.get_type_name() == "MatMul" and len(op.get_output_partial_shape(0)) == DENSE_RANK
    return dense and (activated or biased or scale == "Multiply")


HALVED = "not folded: fp16 would halve the precision of the steps' numbers"


def take_raw_bytes(model: Any, affine: Affine | str, layout: str, precision: str) -> tuple[Any, str]:
    """Add the preprocess steps to a model, so that it takes bytes.

    The plug-in computes the steps before the first convolution, channel by channel. For an image of 32 x 32, that takes
    less time than the runner needs to look up its bytes. The file's metadata state what it computes from a byte
    (`byte_inputs`).

    Parameters
    ----------
    model
        An `openvino.Model`, which may be changed.
    affine
        The steps, or why they cannot be folded, from `fold_preprocess.channel_affine`.
    layout
        The layout of the model's input, such as NCHW.
    precision
        The precision in which the model will be saved.

    Returns
    -------
    tuple
        The model, and a text that says whether the steps were folded. The model is the same if they were not.
    """
    from openvino import Layout, Type
    from openvino.preprocess import PrePostProcessor

    if isinstance(affine, str):
        return model, f"not folded: {affine}"
    if len(model.inputs) != 1 or model.input(0).element_type != Type.f32:
        return (
            model,
            f"not folded: the file has {len(model.inputs)} inputs, of {model.input(0).element_type.to_string()}",
        )
    if precision == "fp16":
        return model, HALVED
    channels = len(affine.scale)
    if channels > 1 and layout not in ("NCHW", "NHWC"):
        return model, f"not folded: the input's layout is {layout}"
    processor = PrePostProcessor(model)
    source = processor.input(0)
    source.tensor().set_element_type(Type.u8)
    steps = source.preprocess().convert_element_type(Type.f32)
    mean = (-affine.shift.astype("float64") / affine.scale).tolist()
    scale = (1 / affine.scale.astype("float64")).tolist()
    if channels > 1:
        source.tensor().set_layout(Layout(layout))
        source.model().set_layout(Layout(layout))
        steps.mean(mean).scale(scale)
    else:
        steps.mean(mean[0]).scale(scale[0])
    model = processor.build()
    remark = byte_inputs.format_remark(affine.scale.tolist(), affine.shift.tolist())
    model.set_rt_info(remark, [byte_inputs.METADATA_KEY])
    scales = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    return model, f"folded: the input takes bytes, {scales}"
