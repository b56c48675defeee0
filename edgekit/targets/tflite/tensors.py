"""Read the inner tensors of a TFLite file, with LiteRT but without its XNNPACK delegate, which does not store them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.input_vector import split
from edgekit.targets import float_ops
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.tensors import INPUT, FileTensor, integer_range, stack_samples


def read(folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """Read the inner tensors, as described in `edgekit.targets.tensors`; `inputs` are in the file's own layout."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    [name] = files.names
    content = (folder / name).read_bytes()
    interpreter = Interpreter(
        model_content=content,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    indices = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    sources = [indices[each.name] for each in files.inputs]
    positions, ops = {source: position for position, source in enumerate(sources)}, []
    for _, _, op, kind in float_ops.main_graph_operators(float_ops.tflite_operators(content)):
        op_inputs = tuple(positions[index] for index in op.inputs if index in positions)
        if op_inputs:
            positions[op.outputs[0]] = len(positions)
            ops.append((kind, op_inputs, op))
    recorded = list(positions)
    rows = []
    tensors = [inputs] if len(sources) == 1 else split(inputs, [each.shape[1:] for each in files.inputs])
    encoded = [_encoder(details[source])(x) for source, x in zip(sources, tensors, strict=True)]
    for number in range(len(inputs)):
        for source, x in zip(sources, encoded, strict=True):
            interpreter.set_tensor(source, x[number : number + 1])
        interpreter.invoke()
        rows.append([_dequantize(details[index], interpreter.get_tensor(index)) for index in recorded])
    values = stack_samples(rows)
    inner_tensors = [
        FileTensor("input" if len(sources) == 1 else each.name, INPUT, (), values[position], _span(details[source]))
        for position, (each, source) in enumerate(zip(files.inputs, sources, strict=True))
    ]
    for (kind, op_inputs, op), own in zip(ops, values[len(sources) :], strict=True):
        index = op.outputs[0]
        tensor_name = details[index]["name"] or f"tensor {index}"
        inner_tensors.append(FileTensor(tensor_name, kind, op_inputs, own, _span(details[index]), _activation(op)))
    return inner_tensors


def _scale(detail: Any) -> tuple[float, int] | None:
    quantized = detail["quantization_parameters"]
    if not len(quantized["scales"]) or np.dtype(detail["dtype"]).kind not in "iu":
        return None
    return float(quantized["scales"][0]), int(quantized["zero_points"][0])


def _dequantize(detail: Any, values: np.ndarray) -> np.ndarray:
    scale = _scale(detail)
    real = values.astype(np.float32)
    return real if scale is None else (real - scale[1]) * np.float32(scale[0])


def _span(detail: Any) -> tuple[float, float] | None:
    scale = _scale(detail)
    return None if scale is None else integer_range(*scale, np.dtype(detail["dtype"]))


def _encoder(detail: Any) -> Callable[[np.ndarray], np.ndarray]:
    scale, dtype = _scale(detail), np.dtype(detail["dtype"])
    if scale is None:
        return lambda x: x.astype(dtype)
    limits = np.iinfo(dtype)
    return lambda x: np.clip(np.rint(x / scale[0]) + scale[1], limits.min, limits.max).astype(dtype)


def _activation(op: Any) -> str:
    from ai_edge_litert import schema_py_generated as schema

    fused = getattr(op.builtinOptions, "fusedActivationFunction", 0)
    names = {value: name for name, value in vars(schema.ActivationFunctionType).items() if not name.startswith("_")}
    return names[fused] if fused else ""
