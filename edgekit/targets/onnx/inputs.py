"""Change the inputs of an ONNX file: free its batch, give it the user's names, and let it take bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from edgekit.models.files.onnx_batch import unused_name
from edgekit.runner.backends import byte_inputs
from edgekit.runner.backends.onnxruntime import BATCH, runtime_errors
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.output_vector import join
from edgekit.targets.fold_preprocess import Affine
from edgekit.targets.onnx.graph import graphs_of

MIXING = {"DynamicQuantizeLinear"}
"""Operators whose result for a sample depends on the other samples in the batch."""
MAX_SHAPE_VALUES = 64
"""Constants with more values are not shapes, and are left out for shape inference."""
PAIRS = 4
MIN_VOCABULARY = 4
FLOAT_TOLERANCE = 1e-3
"""How far a sample's float output may differ between a batch and a call of its own.

It is a share of the largest difference between the outputs for two samples.
"""
QUANTIZED_TOLERANCE = 0.25
"""The same for quantized models, where the last bit may decide between two quantized values."""


def free_batch(content: bytes, exported: bytes) -> bytes:
    """Let a model accept any number of samples, or return it unchanged if that is impossible or changes its answers.

    Models are exported and quantized for one sample, and their batch is freed afterwards, so that this does not change
    what they compute. A model keeps its batch of one if it joins its samples with a constant for one sample, or if an
    answer would depend on the other samples, for example by ranges that are computed in each call.

    `exported` is the float model from which `content` was made, or `content` itself. If the batch of `exported` cannot
    be freed, `content` keeps its batch as well.
    """
    if content == exported:
        return _free_export(exported)
    return content if _free_export(exported) == exported else _free(content, QUANTIZED_TOLERANCE)


@lru_cache(maxsize=2)  # all precisions of one model share it
def _free_export(content: bytes) -> bytes:
    return _free(content, FLOAT_TOLERANCE)


def _free(content: bytes, tolerance: float) -> bytes:
    import onnx

    model = onnx.load_model_from_string(content)
    if any(node.op_type in MIXING for node in model.graph.node) or not _free_reshapes(model):
        return content
    del model.graph.value_info[:]  # shapes for one sample
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = BATCH
    freed = bytes(model.SerializeToString(deterministic=True))
    return freed if _answers_agree(content, freed, tolerance) else content


def _free_reshapes(model: Any) -> bool:
    """Replace the batch by -1 in the constants of reshapes, in place; return False if the batch cannot be followed."""
    from onnx import numpy_helper

    one, constants, replaced = _shapes(model, 1), _constants(model.graph), set()
    used = constants | {name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        before, after = one.get(node.input[0]), one.get(node.output[0])
        two = _shapes(model, 2).get(node.input[0])
        if before is None or after is None or two is None:
            return False
        if before == two:
            continue
        axes = _batch_axes(before, two, after)
        if not axes:
            return False
        replaced.add(node.input[1])
        node.input[1] = unused_name(f"{node.output[0]}_sizes", used)
        model.graph.initializer.add().name = node.input[1]
        sizes = model.graph.initializer[-1]

        def write(axis: int, sizes: Any = sizes, after: tuple[int, ...] = after) -> None:
            freed = np.array([*after[:axis], -1, *after[axis + 1 :]], dtype=np.int64)
            sizes.CopyFrom(numpy_helper.from_array(freed, sizes.name))

        write(_best_axis(model, axes, write))
    _drop_unused(model.graph, replaced)
    doubled = _shapes(model, 2)
    return all(doubled.get(port.name, ())[:1] == (2,) for port in model.graph.output)


def _batch_axes(one: Sequence[int], two: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return the axes that may contain the batch after a reshape.

    `one` and `two` are the shapes before the reshape for one and two samples, and `after` is the shape after it. A
    reshape keeps the distance in memory between samples. An axis of size 1 at that distance is the batch itself. If
    there is none, the batch has become part of one of the adjacent axes.
    """
    changed = [axis for axis in range(len(one)) if one[axis] != two[axis]]
    if len(changed) != 1 or two[changed[0]] != 2 * one[changed[0]]:
        return []
    distances = {math.prod(one[changed[0] :]), math.prod(one[changed[0] + 1 :])}
    outermost = [axis for axis in range(len(after)) if math.prod(after[axis:]) in distances]
    innermost = [axis for axis in range(len(after)) if math.prod(after[axis + 1 :]) in distances]
    own = [axis for axis in outermost if after[axis] == 1]
    return own or outermost + innermost


def _best_axis(model: Any, axes: Sequence[int], write: Callable[[int], None]) -> int:
    """Return the axis with which the most shapes can be inferred for two samples; of equal axes, the first."""
    if len(axes) == 1:
        return axes[0]
    inferred = []
    for axis in axes:
        write(axis)
        inferred.append(len(_shapes(model, 2)))
    return axes[inferred.index(max(inferred))]


def _shapes(model: Any, batch: int) -> dict[str, tuple[int, ...]]:
    """Infer the shapes of the tensors for a batch; tensors of unknown shape are left out."""
    import onnx

    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(_without_weights(model))
    graph = skeleton.graph
    del graph.value_info[:]
    for port in graph.input[: len(model.graph.input)]:  # the inputs after these are weights
        port.type.tensor_type.shape.dim[0].dim_value = batch
    for port in graph.output:
        port.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        return {}
    shapes = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        sides = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(side.HasField("dim_value") for side in sides):
            shapes[value.name] = tuple(side.dim_value for side in sides)
    return shapes


def _without_weights(model: Any) -> Any:
    """Return the model with its large constants as additional inputs, of which only the shapes are known."""
    import onnx

    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    bare.graph.name = model.graph.name
    for part in ("node", "input", "output"):
        getattr(bare.graph, part).extend(getattr(model.graph, part))
    for each in model.graph.initializer:
        if math.prod(each.dims) > MAX_SHAPE_VALUES:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)))
        else:
            bare.graph.initializer.append(each)
    return bare


def _constants(graph: Any) -> set[str]:
    """Return the names of tensors that are stored in the file."""
    return {each.name for each in graph.initializer} | {
        node.output[0] for node in graph.node if node.op_type == "Constant"
    }


def _drop_unused(graph: Any, replaced: set[str]) -> None:
    """Remove the constants in `replaced` that nothing reads any more."""
    unused = replaced - {name for node in graph.node for name in node.input}
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in unused:
            del graph.initializer[index]
    for index in reversed(range(len(graph.node))):
        if graph.node[index].output[0] in unused:
            del graph.node[index]


def _answers_agree(content: bytes, freed: bytes, tolerance: float) -> bool:
    """Return whether both models give the same answers for single samples, and the freed one also for pairs.

    ONNX Runtime's own graph optimisations are off, so that the result is the same on every processor.
    """
    try:
        before, after = _session(content), _session(freed)
        samples = {
            each.name: _samples((2 * PAIRS, *each.shape[1:]), each.type == "tensor(int32)")
            for each in before.get_inputs()
        }
        alone, again, pairs = (
            np.concatenate([join(one.run(None, {name: x[start : start + size] for name, x in samples.items()}))
                            for start in range(0, 2 * PAIRS, size)])
            for one, size in ((before, 1), (after, 1), (after, 2))
        )  # fmt: skip
    except runtime_errors():  # it does not run for two samples, or does not return a row for each
        return False
    if pairs.shape != alone.shape:
        return False
    limit = tolerance * np.abs(alone[::2] - alone[1::2]).max()
    return bool(np.abs(pairs - alone).max() <= limit and np.abs(again - alone).max() <= limit)  # false for NaN


def _samples(shape: tuple[int, ...], ids: bool) -> np.ndarray:
    """Return random float32 numbers or, if `ids` is true, random token ids (int32) that are in every vocabulary."""
    random = np.random.default_rng(0)
    if ids:
        return random.integers(0, MIN_VOCABULARY, shape).astype(np.int32)
    return random.standard_normal(shape).astype(np.float32)


def _session(content: bytes) -> Any:
    import onnxruntime

    from edgekit.runner.backends import onnxruntime as runner

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return runner.session(content, options)


FoldResult = tuple[bytes, tuple[TensorSpec, ...], str]


def take_raw_bytes(content: bytes, affine: Affine | str, sources: tuple[TensorSpec, ...]) -> FoldResult:
    """Add the preprocess steps to a file, so that it takes bytes.

    ONNX Runtime computes the steps faster than the runner can look up the bytes of an image channel by channel. The
    file's metadata state what it computes from a byte (`byte_inputs`).

    Parameters
    ----------
    content
        The file.
    affine
        The steps, or why they cannot be folded, from `fold_preprocess.channel_affine`.
    sources
        The inputs of the file.

    Returns
    -------
    tuple
        The file, its inputs, and a text that says whether the steps were folded. The file is the same if they were not.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if isinstance(affine, str):
        return content, sources, f"not folded: {affine}"
    if len(sources) != 1 or sources[0].dtype != "float32":
        return content, sources, f"not folded: the file has {len(sources)} inputs, or one that is not float32"
    [source], channels = sources, len(affine.scale)
    if channels > 1 and source.layout not in ("NCHW", "NHWC"):
        return content, sources, f"not folded: the input's layout is {source.layout}"
    model = onnx.load_model_from_string(content)
    graph = model.graph
    stored = {one.name for one in graph.initializer}
    used = {*stored, source.name}
    for node in (node for each in graphs_of(graph) for node in each.node):
        used |= {*node.input, *node.output}
    real, scale, scaled, shift, shifted = (
        unused_name(each, used) for each in ("real", "scale", "scaled", "shift", "made")
    )
    for node in (node for each in graphs_of(graph) for node in each.node):
        for index, name in enumerate(node.input):
            node.input[index] = shifted if name == source.name else name
    sides = (1, channels, 1, 1) if channels > 1 and source.layout == "NCHW" else (channels,) if channels > 1 else ()
    for name, values in ((scale, affine.scale), (shift, affine.shift)):
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32).reshape(sides), name))
    front = [
        helper.make_node("Cast", [source.name], [real], name=real, to=TensorProto.FLOAT),
        helper.make_node("Mul", [real, scale], [scaled], name=scaled),
        helper.make_node("Add", [scaled, shift], [shifted], name=shifted),
    ]
    for index, node in enumerate(front):
        graph.node.insert(index, node)
    [port] = [one for one in graph.input if one.name == source.name]
    port.type.tensor_type.elem_type = TensorProto.UINT8
    helper.set_model_props(
        model, {byte_inputs.METADATA_KEY: byte_inputs.format_remark(affine.scale.tolist(), affine.shift.tolist())}
    )
    scales = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    byte_sources = (replace(source, dtype="uint8"),)
    return bytes(model.SerializeToString(deterministic=True)), byte_sources, f"folded: the input takes bytes, {scales}"


def input_placeholders(names: Sequence[str]) -> list[str]:
    """Return names that the inputs have during the export, until `give_input_names` replaces them."""
    return [f"edgekit::input_{index}" for index in range(len(names))]


def give_input_names(model: Any, names: Sequence[str]) -> None:
    """Rename the inputs of an exported model, in place.

    They are not renamed before the export, because a name such as `output`, `linear` or `head.weight` could then be
    defined twice. If another tensor already has the name of an input, that tensor gets a new name.
    """
    graphs = list(graphs_of(model.graph))
    used = {name for graph in graphs for name in _names(graph)}
    new_names = dict(zip(input_placeholders(names), names, strict=True))
    for name in names:
        if name in used:
            new_names[name] = unused_name(name, used | set(names))
            used.add(new_names[name])
    for graph in graphs:
        _rename(graph, new_names)


def _ports(graph: Any) -> Iterator[Any]:
    """Yield everything in a graph that has the name of a tensor, except nodes."""
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from part


def _names(graph: Any) -> Iterator[str]:
    yield from (each.name for each in _ports(graph))
    yield from (name for node in graph.node for name in node.output)


def _rename(graph: Any, new_names: Mapping[str, str]) -> None:
    for each in _ports(graph):
        each.name = new_names.get(each.name, each.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = new_names.get(name, name)
