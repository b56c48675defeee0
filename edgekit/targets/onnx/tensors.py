"""Inner tensors of an ONNX file: ONNX Runtime gives every node's output as an output of the graph.

QuantizeLinear gives no tensor of its own: what it makes is read where DequantizeLinear makes it float again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.backends import onnxruntime as runner
from edgekit.targets.jobs import ConvertedFiles, input_parts
from edgekit.targets.tensors import INPUT, FileTensor, integer_range, stack_samples


def read(folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """See the package."""
    import onnx
    import onnxruntime

    [name] = files.names
    content = (folder / name).read_bytes()
    model = onnx.load_from_string(content)
    nodes = _fed(model.graph)
    outputs = {one.name for one in model.graph.output}
    for node in nodes:
        if node.op_type != "QuantizeLinear" and node.output[0] not in outputs:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = runner.session(model.SerializeToString(), options)
    wanted = [node.output[0] for node in nodes if node.op_type != "QuantizeLinear"]
    names, given = [each.name for each in files.inputs], input_parts(inputs, files.inputs, content)
    rows = [
        session.run(wanted, {name: x[None] for name, x in zip(names, one, strict=True)})
        for one in zip(*given, strict=True)
    ]
    values = dict(zip(wanted, stack_samples(rows), strict=True))
    sources = {name: x.astype(np.float32) for name, x in zip(names, given, strict=True)}
    return _operators(model.graph, nodes, values, sources)


def _fed(graph: Any) -> list[Any]:
    """The nodes that the graph's input reaches; all others work on constants."""
    reached = {one.name for one in graph.input}
    found = []
    for node in graph.node:
        if reached & set(node.input):
            reached |= set(node.output)
            found.append(node)
    return found


def _operators(
    graph: Any, nodes: list[Any], values: dict[str, np.ndarray], sources: dict[str, np.ndarray]
) -> list[FileTensor]:
    from onnx import numpy_helper

    constants = {one.name: one for one in graph.initializer}
    found = [FileTensor(name, INPUT, (), x) for name, x in sources.items()]
    places = {name: place for place, name in enumerate(sources)}
    for node in nodes:
        taken = tuple(places[name] for name in node.input if name in places)
        own = values.get(node.output[0])
        if own is None or own.dtype.kind != "f":
            places[node.output[0]] = taken[0]
            continue
        limits = None
        if node.op_type == "DequantizeLinear" and {*node.input[1:]} <= set(constants):
            scale, zero_point = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
            limits = integer_range(float(scale), int(zero_point), zero_point.dtype)
        places[node.output[0]] = len(found)
        found.append(FileTensor(node.name or node.output[0], node.op_type, taken, own.astype(np.float32), limits))
    return found
