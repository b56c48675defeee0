"""The batch of an exported ONNX file set free: its axis is called "batch", and reshapes keep no number in its place.

The file is exported, and quantized, for one sample. Only then is its batch freed, so what it computes is what it was.
A file keeps its batch where that is not proven: the network joins its samples with a constant for one of them, or a
sample's answer would depend on its neighbours, as ranges that are taken anew in each call do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.runner.backends.onnxruntime import BATCH

MIXING = {"DynamicQuantizeLinear"}
"""Their result for a sample depends on the samples beside it."""
SMALL = 64
"""A constant with more values is no shape; its values are left out where only shapes are looked at."""
PAIRS = 4
NEAR = 0.25
"""An output may be off by this share of what parts it from its neighbour's: rounding is far below, a mix-up above."""


def free(content: bytes) -> bytes:
    """The model for any number of samples, or unchanged where it cannot be, or is not proven."""
    import onnx

    model = onnx.load_model_from_string(content)
    if any(node.op_type in MIXING for node in model.graph.node) or not _free_reshapes(model):
        return content
    del model.graph.value_info[:]  # shapes for one sample
    for port in (model.graph.input[0], model.graph.output[0]):
        port.type.tensor_type.shape.dim[0].dim_param = BATCH
    freed = bytes(model.SerializeToString(deterministic=True))
    return freed if _same(content, freed) else content


def _free_reshapes(model: Any) -> bool:
    """Write -1 where a reshape's constant holds the batch, in place; False where the batch cannot be followed."""
    from onnx import numpy_helper

    one, constants, replaced = _shapes(model, 1), _constants(model.graph), set()
    for node in model.graph.node:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        before, after = one.get(node.input[0]), one.get(node.output[0])
        two = _shapes(model, 2).get(node.input[0])
        if before is None or after is None or two is None:
            return False
        if before == two:
            continue
        place = _place(before, two, after)
        if place is None:
            return False
        sizes = [*after[:place], -1, *after[place + 1 :]]
        replaced.add(node.input[1])
        node.input[1] = f"{node.output[0]}_sizes"
        model.graph.initializer.append(numpy_helper.from_array(np.array(sizes, dtype=np.int64), node.input[1]))
    _drop_unused(model.graph, replaced)
    return _shapes(model, 2).get(model.graph.output[0].name, ())[:1] == (2,)


def _place(one: Sequence[int], two: Sequence[int], after: Sequence[int]) -> int | None:
    """Where the batch stands behind a reshape: what lies outside of it stays outside. None where that is not clear."""
    changed = [axis for axis in range(len(one)) if one[axis] != two[axis]]
    if len(changed) != 1 or two[changed[0]] != 2 * one[changed[0]]:
        return None
    outside = math.prod(one[: changed[0]])
    return next((axis for axis in range(len(after)) if math.prod(after[:axis]) == outside), None)


def _shapes(model: Any, batch: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that is known for so many samples."""
    import onnx

    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(_without_weights(model))
    graph = skeleton.graph
    del graph.value_info[:]
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    for port in graph.output:
        port.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}
    found = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        sides = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(side.HasField("dim_value") for side in sides):
            found[value.name] = tuple(side.dim_value for side in sides)
    return found


def _without_weights(model: Any) -> Any:
    """The model with its large constants as further inputs, of which only the shapes are known."""
    import onnx

    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    bare.graph.name = model.graph.name
    for part in ("node", "input", "output"):
        getattr(bare.graph, part).extend(getattr(model.graph, part))
    for each in model.graph.initializer:
        if math.prod(each.dims) > SMALL:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)))
        else:
            bare.graph.initializer.append(each)
    return bare


def _constants(graph: Any) -> set[str]:
    """Names of tensors that are written into the file."""
    return {each.name for each in graph.initializer} | {
        node.output[0] for node in graph.node if node.op_type == "Constant"
    }


def _drop_unused(graph: Any, replaced: set[str]) -> None:
    """Remove those of the replaced sizes that nothing takes any longer."""
    unused = replaced - {name for node in graph.node for name in node.input}
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name in unused:
            del graph.initializer[place]
    for place in reversed(range(len(graph.node))):
        if graph.node[place].output[0] in unused:
            del graph.node[place]


def _same(content: bytes, freed: bytes) -> bool:
    """Whether both give the same alone, and the freed one gives two samples at once what each gets alone.

    Without ONNX Runtime's own changes to the graph: on every processor the verdict is the same.
    """
    try:
        before, after = _session(content), _session(freed)
        source = before.get_inputs()[0]
        samples = np.random.default_rng(0).standard_normal((2 * PAIRS, *source.shape[1:])).astype(np.float32)
        alone, again, pairs = (
            np.concatenate([one.run(None, {source.name: samples[place : place + size]})[0]
                            for place in range(0, len(samples), size)])
            for one, size in ((before, 1), (after, 1), (after, 2))
        )  # fmt: skip
    except Exception:  # ONNX Runtime's errors share no base class
        return False
    if pairs.shape != alone.shape:
        return False
    limit = NEAR * np.abs(alone[::2] - alone[1::2]).max()
    return bool(np.abs(pairs - alone).max() <= limit and np.abs(again - alone).max() <= limit)  # a NaN is no match


def _session(content: bytes) -> Any:
    import onnxruntime

    from edgekit.runner.backends import onnxruntime as runner

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return runner.session(content, options)
