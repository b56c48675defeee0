"""Inner tensors of a TFLite file, by LiteRT without its XNNPACK delegate, which keeps none."""

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
    """See the package; `inputs` in the file's own layout."""
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
    places, ops = {source: place for place, source in enumerate(sources)}, []
    for _, _, op, kind in float_ops.main_graph_operators(float_ops.tflite_operators(content)):
        taken = tuple(places[place] for place in op.inputs if place in places)
        if taken:
            places[op.outputs[0]] = len(places)
            ops.append((kind, taken, op))
    wanted = list(places)
    rows = []
    tensors = [inputs] if len(sources) == 1 else split(inputs, [each.shape[1:] for each in files.inputs])
    given = [_encoder(details[source])(x) for source, x in zip(sources, tensors, strict=True)]
    for number in range(len(inputs)):
        for source, x in zip(sources, given, strict=True):
            interpreter.set_tensor(source, x[number : number + 1])
        interpreter.invoke()
        rows.append([_real(details[place], interpreter.get_tensor(place)) for place in wanted])
    values = stack_samples(rows)
    found = [
        FileTensor("input" if len(sources) == 1 else each.name, INPUT, (), values[place], _span(details[source]))
        for place, (each, source) in enumerate(zip(files.inputs, sources, strict=True))
    ]
    for (kind, taken, op), own in zip(ops, values[len(sources) :], strict=True):
        place = op.outputs[0]
        named = details[place]["name"] or f"tensor {place}"
        found.append(FileTensor(named, kind, taken, own, _span(details[place]), _activation(op)))
    return found


def _scale(detail: Any) -> tuple[float, int] | None:
    quantized = detail["quantization_parameters"]
    if not len(quantized["scales"]) or np.dtype(detail["dtype"]).kind not in "iu":
        return None
    return float(quantized["scales"][0]), int(quantized["zero_points"][0])


def _real(detail: Any, values: np.ndarray) -> np.ndarray:
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
