"""An OpenVINO model that takes a sample's bytes: its affine preprocess steps in front, by `PrePostProcessor`.

The plug-in computes them before the first convolution, channel by channel: of a picture of 32 x 32 in less time than
the runner needs to look its bytes up. The file says of itself what it makes of a byte (`byte_inputs`).
"""

from __future__ import annotations

from typing import Any

from edgekit.runner.backends import byte_inputs
from edgekit.targets.fold_preprocess import Affine

HALVED = "not folded: fp16 would halve the numbers of the steps"


def fold(model: Any, found: Affine | str, layout: str, precision: str) -> tuple[Any, str]:
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
    model.set_rt_info(byte_inputs.remark(found.scale.tolist(), found.shift.tolist()), [byte_inputs.KEY])
    said = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    return model, f"folded: the input takes bytes, {said}"
