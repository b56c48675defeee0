"""Read the inner tensors of an OpenVINO IR, by making the output of every operator a result of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.backends.openvino import compile_model
from edgekit.targets.jobs import ConvertedFiles, input_parts
from edgekit.targets.tensors import INPUT, FileTensor, stack_samples

PLAIN = ("Parameter", "Result", "Constant")


def read(folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """Read the inner tensors, as described in `edgekit.targets.tensors`."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(folder / files.names[0]))
    ports = {name: port for port in model.inputs for name in port.get_names()}
    sources = [ports[each.name].get_node().get_friendly_name() for each in files.inputs]
    indices, ops = {name: index for index, name in enumerate(sources)}, []
    for op in model.get_ordered_ops():
        names = [op.input_value(index).get_node().get_friendly_name() for index in range(op.get_input_size())]
        op_inputs = tuple(indices[name] for name in names if name in indices)
        if op_inputs and op.get_type_name() not in PLAIN and op.output(0).get_element_type().is_real():
            ops.append((op, op_inputs))
            indices[op.get_friendly_name()] = len(sources) + len(ops) - 1  # the inputs come first
        elif op_inputs:
            indices[op.get_friendly_name()] = op_inputs[0]
    answers = [port.get_node().input_value(0).get_node().get_friendly_name() for port in model.outputs]
    inner = [op for op, _ in ops if op.get_friendly_name() not in answers]
    model.add_outputs([op.output(0) for op in inner])
    compiled = compile_model(core, model, threads=1)
    rows, tensors = [], input_parts(inputs, files.inputs, (folder / files.names[0]).read_bytes())
    for index in range(len(inputs)):
        outputs = compiled({each.name: x[index : index + 1] for each, x in zip(files.inputs, tensors, strict=True)})
        rows.append([outputs[port].astype(np.float32) for port in compiled.outputs])  # copies, as buffers are reused
    values = dict(zip([*answers, *(op.get_friendly_name() for op in inner)], stack_samples(rows), strict=True))
    inner_tensors = [
        FileTensor(name, INPUT, (), x.astype(np.float32)) for name, x in zip(sources, tensors, strict=True)
    ]
    for op, op_inputs in ops:
        name = op.get_friendly_name()
        inner_tensors.append(FileTensor(name, op.get_type_name(), op_inputs, values[name], _span(op)))
    return inner_tensors


def _span(op: Any) -> tuple[float, float] | None:
    """Return the range of a FakeQuantize's output; None for other operators and for several ranges."""
    if op.get_type_name() != "FakeQuantize":
        return None
    low, high = (op.input_value(index).get_node() for index in (3, 4))
    if any(limit.get_type_name() != "Constant" or limit.get_data().size != 1 for limit in (low, high)):
        return None
    return float(low.get_data().item()), float(high.get_data().item())
