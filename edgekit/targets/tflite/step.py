"""The step of a network with states as TFLite."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import ConversionError
from edgekit.models.files import flatbuffer
from edgekit.targets.tflite import strip_names
from edgekit.targets.tflite.convert import FILE

if TYPE_CHECKING:
    from edgekit.targets.step import Step


def write(step: Step, out: Path) -> list[Path]:
    """`model.tflite`, its inputs and outputs named as the step names them; pictures enter as NHWC."""
    import litert_torch

    network, example = step.network, step.example
    if len(step.input_shape) == 3:
        network = litert_torch.to_channel_last_io(network, args=[0]).eval()
        example = (example[0].permute(0, 2, 3, 1).contiguous(), *example[1:])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        litert_torch.convert(network, example).export(str(path))
        model = flatbuffer.parse(path.read_bytes())
    _name(model, step)
    (out / FILE).write_bytes(strip_names.shorten(flatbuffer.write(model)))
    return [out / FILE]


def _name(model: Any, step: Step) -> None:
    """By the signature, which numbers what `forward` takes and gives."""
    [signature] = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    named: dict[int, str] = {}
    for ends, names in ((signature.inputs, step.inputs), (signature.outputs, step.outputs)):
        for end in ends:
            place = end.tensorIndex
            name = names[int(end.name.decode().rpartition("_")[2])]
            if place in named:
                raise ConversionError(
                    f"tflite: {named[place]} and {name} are one tensor; compute them apart, such as by x * 1.0"
                )
            named[place] = name
            graph.tensors[place].name = name.encode()
    if len(named) != len(step.inputs) + len(step.outputs):
        raise ConversionError(f"tflite: the file has {len(named)} ends; the step has others: does it use every state?")
