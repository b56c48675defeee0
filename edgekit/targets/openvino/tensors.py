"""Inner tensors of an OpenVINO IR: every operator's output is made a result of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.backends.openvino import compile_model
from edgekit.targets.jobs import ConvertedFiles, input_parts
from edgekit.targets.tensors import INPUT, FileTensor, stack_samples

PLAIN = ("Parameter", "Result", "Constant")


def read(folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """See the package."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(folder / files.names[0]))
    ports = {name: port for port in model.inputs for name in port.get_names()}
    sources = [ports[each.name].get_node().get_friendly_name() for each in files.inputs]
    places, ops = {name: place for place, name in enumerate(sources)}, []
    for op in model.get_ordered_ops():
        feeding = [op.input_value(place).get_node().get_friendly_name() for place in range(op.get_input_size())]
        taken = tuple(places[name] for name in feeding if name in places)
        if taken and op.get_type_name() not in PLAIN and op.output(0).get_element_type().is_real():
            ops.append((op, taken))
            places[op.get_friendly_name()] = len(sources) + len(ops) - 1  # the inputs come first
        elif taken:
            places[op.get_friendly_name()] = taken[0]
    answers = [port.get_node().input_value(0).get_node().get_friendly_name() for port in model.outputs]
    inner = [op for op, _ in ops if op.get_friendly_name() not in answers]
    model.add_outputs([op.output(0) for op in inner])
    compiled = compile_model(core, model, threads=1)
    rows, tensors = [], input_parts(inputs, files.inputs, (folder / files.names[0]).read_bytes())
    for place in range(len(inputs)):
        given = compiled({each.name: x[place : place + 1] for each, x in zip(files.inputs, tensors, strict=True)})
        rows.append([given[port].astype(np.float32) for port in compiled.outputs])  # copies: it writes there again
    values = dict(zip([*answers, *(op.get_friendly_name() for op in inner)], stack_samples(rows), strict=True))
    found = [FileTensor(name, INPUT, (), x.astype(np.float32)) for name, x in zip(sources, tensors, strict=True)]
    for op, taken in ops:
        name = op.get_friendly_name()
        found.append(FileTensor(name, op.get_type_name(), taken, values[name], _span(op)))
    return found


def _span(op: Any) -> tuple[float, float] | None:
    """The range that a FakeQuantize of one range gives."""
    if op.get_type_name() != "FakeQuantize":
        return None
    ends = [op.input_value(place).get_node() for place in (3, 4)]
    if any(end.get_type_name() != "Constant" or end.get_data().size != 1 for end in ends):
        return None
    return float(ends[0].get_data().item()), float(ends[1].get_data().item())
