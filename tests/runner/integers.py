"""A `.tflite` file whose input holds integers with a scale: one dense layer over their real values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CLASSES = 3


def dense(shape: Sequence[int]) -> np.ndarray:
    """Seeded weights (classes, values)."""
    size = int(np.prod(shape))
    return np.random.default_rng(size).normal(0, 1, (CLASSES, size)).astype(np.float32)


def tflite(shape: Sequence[int], dtype: str, scale: float, zero_point: int, out_scale: float = 0.0) -> bytes:
    """(1, *shape) of `dtype`, scale · (q - zero_point), to (1, 3): float scores, or int8 in steps of `out_scale`."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    kinds = {"int8": schema.TensorType.INT8, "uint8": schema.TensorType.UINT8, "float32": schema.TensorType.FLOAT32}
    operators = schema.BuiltinOperator

    def tensor(name: str, shape: Sequence[int], dtype: str, buffer: int = 0, quantized: tuple[float, int] = ()) -> Any:  # type: ignore[assignment]
        made = _filled(schema.TensorT(), name=name, shape=list(shape), buffer=buffer, type=kinds[dtype])
        if quantized:
            made.quantization = _filled(
                schema.QuantizationParametersT(), scale=[quantized[0]], zeroPoint=[quantized[1]]
            )
        return made

    def operator(code: int, inputs: list[int], outputs: list[int], **options: Any) -> Any:
        return _filled(schema.OperatorT(), opcodeIndex=code, inputs=inputs, outputs=outputs, **options)

    weights = dense(shape)
    tensors = [
        tensor("features", [1, *shape], dtype, quantized=(scale, zero_point)),
        tensor("real", [1, *shape], "float32"),
        tensor("dense", weights.shape, "float32", buffer=1),
        tensor("scores", [1, CLASSES], "float32"),
    ]
    steps = [
        operator(0, [0], [1]),
        operator(
            1,
            [1, 2, -1],
            [3],
            builtinOptionsType=schema.BuiltinOptions.FullyConnectedOptions,
            builtinOptions=schema.FullyConnectedOptionsT(),
        ),
    ]
    if out_scale:
        tensors.append(tensor("answer", [1, CLASSES], "int8", quantized=(out_scale, 0)))
        steps.append(operator(2, [3], [4]))
    graph = _filled(schema.SubGraphT(), tensors=tensors, operators=steps, inputs=[0], outputs=[len(tensors) - 1])
    codes = [
        _filled(schema.OperatorCodeT(), builtinCode=code, deprecatedBuiltinCode=code, version=2 if code == 6 else 1)
        for code in (operators.DEQUANTIZE, operators.FULLY_CONNECTED, operators.QUANTIZE)
    ]
    buffers = [
        _filled(schema.BufferT(), data=np.frombuffer(data, np.uint8) if data else None)
        for data in (b"", weights.tobytes())
    ]
    model = _filled(schema.ModelT(), version=3, operatorCodes=codes, subgraphs=[graph], buffers=buffers)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def bare(model: bytes, samples: np.ndarray) -> np.ndarray:
    """What LiteRT itself gives for input tensors (n, *shape) of the model's own type: (n, 3), as the file stores it."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for sample in samples:
        interpreter.set_tensor(source["index"], sample[None])
        interpreter.invoke()
        found.append(interpreter.get_tensor(result["index"])[0].copy())
    return np.stack(found)


def _filled(table: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(table, name, value)
    return table
