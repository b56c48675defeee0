"""A small SSD in a TFLite file that ends with TensorFlow's `TFLite_Detection_PostProcess`.

The file is written with the schema that LiteRT ships. TensorFlow's converter would take a minute to import.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

SIZE, CLASSES, MOST, STRIDE = (64, 96), 3, 10, 16
ROWS, COLUMNS = SIZE[0] // STRIDE, SIZE[1] // STRIDE
OPTIONS = {
    "max_detections": MOST, "max_classes_per_detection": 1, "num_classes": CLASSES, "use_regular_nms": False,
    "nms_score_threshold": 0.1, "nms_iou_threshold": 0.5,
    "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
BOXES, INDEX, SCORE, COUNT = "boxes", "index", "score", "count"
SHAPES = {BOXES: [1, MOST, 4], INDEX: [1, MOST], SCORE: [1, MOST], COUNT: [1]}
Tensors = dict[str, tuple[list[int], np.ndarray | None]]


def tflite(order: tuple[str, ...] = (BOXES, INDEX, SCORE, COUNT), bias: float = 0.0) -> bytes:
    """The file, from an image (1, 64, 96, 3) to outputs in this order; `bias` is added to the logits."""
    random = np.random.default_rng(0)
    y, x = np.meshgrid((np.arange(ROWS) + 0.5) / ROWS, (np.arange(COLUMNS) + 0.5) / COLUMNS, indexing="ij")
    priors = np.stack([y, x, np.full_like(y, 0.4), np.full_like(y, 0.3)], -1).reshape(-1, 4)
    points, columns = ROWS * COLUMNS, 1 + CLASSES
    tensors: Tensors = {
        "image": ([1, *SIZE, 3], None),
        "box kernel": ([4, STRIDE, STRIDE, 3], random.normal(0, 0.1, (4, STRIDE, STRIDE, 3))),
        "box bias": ([4], np.zeros(4)),
        "score kernel": ([columns, STRIDE, STRIDE, 3], random.normal(0, 0.06, (columns, STRIDE, STRIDE, 3))),
        "score bias": ([columns], np.full(columns, bias)),
        "priors": ([points, 4], priors),
        "box map": ([1, ROWS, COLUMNS, 4], None),
        "score map": ([1, ROWS, COLUMNS, columns], None),
        "box codes": ([1, points, 4], None),
        "logits": ([1, points, columns], None),
        "probabilities": ([1, points, columns], None),
        **{name: (shape, None) for name, shape in SHAPES.items()},
    }
    model = schema.ModelT()
    model.version, model.buffers = 3, [schema.BufferT()]
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(model, name, *facts) for name, facts in tensors.items()]
    names = list(tensors)
    kinds = (schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.RESHAPE, schema.BuiltinOperator.LOGISTIC)
    model.operatorCodes = [_code(kind) for kind in kinds] + [_code(schema.BuiltinOperator.CUSTOM)]
    model.operatorCodes[-1].customCode = b"TFLite_Detection_PostProcess"

    def operator(code: int, inputs: list[str], outputs: list[str]) -> Any:
        made = schema.OperatorT()
        made.opcodeIndex = code
        made.inputs, made.outputs = ([names.index(each) for each in part] for part in (inputs, outputs))
        return made

    convolutions = [
        operator(0, ["image", f"{part} kernel", f"{part} bias"], [f"{part} map"]) for part in ("box", "score")
    ]
    for each in convolutions:
        each.builtinOptionsType, options = schema.BuiltinOptions.Conv2DOptions, schema.Conv2DOptionsT()
        options.padding, options.strideW, options.strideH = schema.Padding.VALID, STRIDE, STRIDE
        options.dilationWFactor = options.dilationHFactor = 1
        each.builtinOptions = options
    reshapes = [operator(1, ["box map"], ["box codes"]), operator(1, ["score map"], ["logits"])]
    for each, shape in zip(reshapes, ([1, points, 4], [1, points, columns]), strict=True):
        each.builtinOptionsType, each.builtinOptions = schema.BuiltinOptions.ReshapeOptions, schema.ReshapeOptionsT()
        each.builtinOptions.newShape = shape
    last = operator(3, ["box codes", "probabilities", "priors"], list(SHAPES))
    last.customOptions = list(flexbuffers.Dumps(OPTIONS))
    graph.operators = [*convolutions, *reshapes, operator(2, ["logits"], ["probabilities"]), last]
    graph.inputs, graph.outputs = [0], [names.index(each) for each in order]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(model: Any, name: str, shape: list[int], values: np.ndarray | None) -> Any:
    """A float tensor, whose values are stored in a buffer of the model."""
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), shape, schema.TensorType.FLOAT32, 0
    if values is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(values.astype(np.float32).tobytes(), dtype=np.uint8)
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)
    return tensor


def _code(kind: int) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = kind, min(kind, 127), 1
    return code
