"""The step of a network with states as OpenVINO IR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.targets.openvino import slim_xml
from edgekit.targets.openvino.convert import FILES, name_layers

if TYPE_CHECKING:
    from edgekit.targets.step import Step


def write(step: Step, out: Path) -> list[Path]:
    """`model.xml` and `model.bin`, its inputs and outputs named as the step names them."""
    import openvino

    example = step.example
    model = openvino.convert_model(step.network, example_input=example, input=[list(each.shape) for each in example])
    name_layers(model)
    for ports, names in ((model.inputs, step.inputs), (model.outputs, step.outputs)):
        for port, name in zip(ports, names, strict=True):
            port.get_node().set_friendly_name(name)
            port.get_tensor().set_names({name})
    openvino.save_model(model, str(out / FILES[0]), compress_to_fp16=False)
    slim_xml.shorten_file(out / FILES[0])
    return [out / name for name in FILES]
