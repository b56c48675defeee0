"""Small model files of three formats with debris that is known, written operator by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CHW = (1, 2, 4, 4)


def onnx_file(steps: list[Any]) -> bytes:
    """A chain of nodes from `x` (1, 2, 4, 4); a step is a type, and its attributes or its second input.

    Of the second inputs `folded` is computed from constants, `expanded` too, `pooled` is broadcast from the input.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, last = [], [], "x"

    def constant(value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"constant{len(constants)}"))
        return str(constants[-1].name)

    def second(what: str) -> list[str]:
        if what == "scale":
            return [constant(np.array(0.5, np.float32)), constant(np.array(0, np.uint8))]
        if what == "folded":
            nodes.append(helper.make_node("Neg", [constant(np.ones(1, np.float32))], [what]))
        elif what == "expanded":
            inputs = [constant(np.full(1, 2, np.float32)), constant(np.array(CHW))]
            nodes.append(helper.make_node("Expand", inputs, [what]))
        else:
            nodes.append(helper.make_node("GlobalAveragePool", [last], ["small"]))
            nodes.append(helper.make_node("Expand", ["small", constant(np.array(CHW))], [what]))
        return [what]

    for number, (kind, *rest) in enumerate(steps):
        attributes = rest[0] if rest and isinstance(rest[0], dict) else {}
        inputs = [last]
        if kind == "Conv":
            inputs.append(constant(np.ones((2, 2, rest[0], rest[0]), np.float32)))
        elif rest and isinstance(rest[0], str):
            inputs += second(rest[0])
        else:
            inputs += [constant(value) for value in rest if isinstance(value, np.ndarray)]
        nodes.append(helper.make_node(kind, inputs, [f"y{number}"], f"node{number}", **attributes))
        last = f"y{number}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, CHW)],
        [onnx.ValueInfoProto(name=last)],
        constants,
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())


def openvino_file(case: str, path: Path) -> Path:
    """Two convolutions with something between them, or before the second's weights."""
    import openvino
    from openvino import opset13 as ops

    def convolution(x: Any, weights: Any, name: str) -> Any:
        made = ops.convolution(x, weights, [1, 1], [0, 0], [0, 0], [1, 1])
        made.set_friendly_name(f"__module.{name}/conv")
        return made

    weights = np.random.default_rng(0).random((2, 2, 1, 1)).astype(np.float32)
    x = ops.parameter([1, 2, 4, 6], np.float32, name="input")
    y = ops.relu(convolution(x, ops.constant(weights), "first"))
    low, high = ops.constant(np.float32(0)), ops.constant(np.float32(1))
    more: Any = ops.constant(weights + 1)
    if case == "transpose":
        y = ops.transpose(y, [0, 1, 3, 2])
    elif case == "ones":
        y = ops.relu(ops.transpose(ops.reduce_mean(y, [2, 3], keep_dims=True), [0, 2, 1, 3]))
        y = ops.transpose(y, [0, 2, 1, 3])
    elif case in ("pad", "reflect"):
        mode = "constant" if case == "pad" else "reflect"
        y = ops.pad(y, [0, 0, 1, 1], [0, 0, 1, 1], mode, ops.constant(np.float32(0)))
    elif case == "twice quantized":
        y = ops.fake_quantize(ops.fake_quantize(y, low, high, low, high, 256), low, high, low, high, 255)
    elif case == "casts":
        y = ops.convert(ops.convert(y, "f64"), "f32")
    elif case == "folded":
        more = ops.negative(more)
    elif case == "half weights":
        more = ops.convert(ops.constant((weights + 1).astype(np.float16)), "f32")
    model = openvino.Model([convolution(y, more, "second")], [x], "chain")
    openvino.save_model(model, str(path), compress_to_fp16=False)
    return path


def tflite_file(steps: list[Any], named: bool = True) -> bytes:
    """A chain of operators from a tensor (1, 4, 4, 2); tensors are named `layer0`, `layer1` and so on."""
    from ai_edge_litert import schema_py_generated as schema

    from edgekit.models.files.flatbuffer import IDENTIFIER

    import flatbuffers  # isort: skip

    buffers, tensors, operators, codes = [schema.BufferT()], [], [], []

    def tensor(shape: tuple[int, ...], kind: str, value: np.ndarray | None = None, name: str | None = None) -> int:
        made = schema.TensorT()
        made.shape, made.type, made.name = list(shape), getattr(schema.TensorType, kind), name
        if value is not None:
            buffers.append(schema.BufferT())
            buffers[-1].data = np.frombuffer(value.tobytes(), np.uint8)
            made.buffer = len(buffers) - 1
        tensors.append(made)
        return len(tensors) - 1

    shape, kind = (1, 4, 4, 2), "FLOAT32"
    first = last = tensor(shape, kind, name="input")
    for number, (name, *rest) in enumerate(steps):
        inputs, options = [last], None
        if name == "TRANSPOSE":
            inputs.append(tensor((4,), "INT32", np.array(rest[0], np.int32)))
            shape = tuple(shape[axis] for axis in rest[0])
        elif name == "PAD":
            table = np.array([[0, 0], rest[0], rest[0], [0, 0]], np.int32)
            inputs.append(tensor((4, 2), "INT32", table))
            shape = tuple(side + int(sum(row)) for side, row in zip(shape, table, strict=True))
        elif name == "CONV_2D":
            inputs.append(tensor((2, 3, 3, 2), kind, np.ones(36, np.float32)))
            options = schema.Conv2DOptionsT()
            options.padding, options.strideH, options.strideW = schema.Padding.VALID, rest[0], rest[0]
            options.dilationHFactor = options.dilationWFactor = 1
            shape = (1, *((side - 3) // rest[0] + 1 for side in shape[1:3]), 2)
        elif rest:
            kind = rest[0]
        last = tensor(shape, kind, name=f"layer{number}" if named else None)
        code, made = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
        codes.append(code)
        made.opcodeIndex, made.inputs, made.outputs = number, inputs, [last]
        if options is not None:
            made.builtinOptions, made.builtinOptionsType = options, schema.BuiltinOptions.Conv2DOptions
        operators.append(made)
    graph, model = schema.SubGraphT(), schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, operators, [first], [last]
    model.version, model.buffers, model.subgraphs, model.operatorCodes = 3, buffers, [graph], codes
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())
