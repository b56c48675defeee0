"""Read the inner tensors of an ONNX file, by making the output of every node an output of the graph.

QuantizeLinear has no entry of its own; its result is read after DequantizeLinear, where it is float again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.backends import onnxruntime as runner
from edgekit.targets.jobs import ConvertedFiles, input_parts
from edgekit.targets.tensors import INPUT, FileTensor, integer_range, stack_samples


def read(folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """Read the inner tensors, as described in `edgekit.targets.tensors`."""
    import onnx
    import onnxruntime

    [name] = files.names
    content = (folder / name).read_bytes()
    model = onnx.load_from_string(content)
    nodes = _nodes_after_inputs(model.graph)
    outputs = {one.name for one in model.graph.output}
    for node in nodes:
        if node.op_type != "QuantizeLinear" and node.output[0] not in outputs:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = runner.session(model.SerializeToString(), options)
    recorded = [node.output[0] for node in nodes if node.op_type != "QuantizeLinear"]
    names, parts = [each.name for each in files.inputs], input_parts(inputs, files.inputs, content)
    rows = [
        session.run(recorded, {name: x[None] for name, x in zip(names, sample, strict=True)})
        for sample in zip(*parts, strict=True)
    ]
    values = dict(zip(recorded, stack_samples(rows), strict=True))
    sources = {name: x.astype(np.float32) for name, x in zip(names, parts, strict=True)}
    return _operators(model.graph, nodes, values, sources)


def _nodes_after_inputs(graph: Any) -> list[Any]:
    """Return the nodes that depend on the graph's inputs; all others work on constants."""
    reached = {one.name for one in graph.input}
    nodes = []
    for node in graph.node:
        if reached & set(node.input):
            reached |= set(node.output)
            nodes.append(node)
    return nodes


def _operators(
    graph: Any, nodes: list[Any], values: dict[str, np.ndarray], sources: dict[str, np.ndarray]
) -> list[FileTensor]:
    from onnx import numpy_helper

    constants = {one.name: one for one in graph.initializer}
    tensors = [FileTensor(name, INPUT, (), x) for name, x in sources.items()]
    indices = {name: index for index, name in enumerate(sources)}
    for node in nodes:
        node_inputs = tuple(indices[name] for name in node.input if name in indices)
        own = values.get(node.output[0])
        if own is None or own.dtype.kind != "f":
            indices[node.output[0]] = node_inputs[0]
            continue
        limits = None
        if node.op_type == "DequantizeLinear" and {*node.input[1:]} <= set(constants):
            scale, zero_point = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
            limits = integer_range(float(scale), int(zero_point), zero_point.dtype)
        indices[node.output[0]] = len(tensors)
        tensors.append(
            FileTensor(node.name or node.output[0], node.op_type, node_inputs, own.astype(np.float32), limits)
        )
    return tensors
