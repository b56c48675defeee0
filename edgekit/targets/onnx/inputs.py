"""The inputs of an ONNX file: a free batch, the user's names, and samples that enter as bytes."""

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
"""Their result for a sample depends on the samples beside it."""
MAX_SHAPE_VALUES = 64
"""A constant with more values is no shape; its values are left out where only shapes are looked at."""
PAIRS = 4
FEWEST_IDS = 4
FLOAT_TOLERANCE = 1e-3
"""An output in float may be off by this share of what parts it from its neighbour's; it is off by 1e-6 of its size."""
QUANTIZED_TOLERANCE = 0.25
"""The same after quantization, where the last bit may decide on a step."""


def free_batch(content: bytes, exported: bytes) -> bytes:
    """The model for any number of samples, or unchanged where it cannot be, or is not proven.

    `exported` is the float model that it was made from, perhaps itself: what that does not allow is not tried.

    The file is exported, and quantized, for one sample. Only then is its batch freed, so what it computes is what it
    was. A file keeps its batch where that is not proven: the network joins its samples with a constant for one of them,
    or a sample's answer would depend on its neighbours, as ranges that are taken anew in each call do.
    """
    if content == exported:
        return _freed_export(exported)
    return content if _freed_export(exported) == exported else _freed(content, QUANTIZED_TOLERANCE)


@lru_cache(maxsize=2)  # all precisions of one model share it
def _freed_export(content: bytes) -> bytes:
    return _freed(content, FLOAT_TOLERANCE)


def _freed(content: bytes, near: float) -> bytes:
    import onnx

    model = onnx.load_model_from_string(content)
    if any(node.op_type in MIXING for node in model.graph.node) or not _free_reshapes(model):
        return content
    del model.graph.value_info[:]  # shapes for one sample
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = BATCH
    freed = bytes(model.SerializeToString(deterministic=True))
    return freed if _same(content, freed, near) else content


def _free_reshapes(model: Any) -> bool:
    """Write -1 where a reshape's constant holds the batch, in place; False where the batch cannot be followed."""
    from onnx import numpy_helper

    one, constants, replaced = _shapes(model, 1), _constants(model.graph), set()
    known = constants | {name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        before, after = one.get(node.input[0]), one.get(node.output[0])
        two = _shapes(model, 2).get(node.input[0])
        if before is None or after is None or two is None:
            return False
        if before == two:
            continue
        places = _places(before, two, after)
        if not places:
            return False
        replaced.add(node.input[1])
        node.input[1] = unused_name(f"{node.output[0]}_sizes", known)
        model.graph.initializer.add().name = node.input[1]
        sizes = model.graph.initializer[-1]

        def write(place: int, sizes: Any = sizes, after: tuple[int, ...] = after) -> None:
            freed = np.array([*after[:place], -1, *after[place + 1 :]], dtype=np.int64)
            sizes.CopyFrom(numpy_helper.from_array(freed, sizes.name))

        write(_best(model, places, write))
    _drop_unused(model.graph, replaced)
    doubled = _shapes(model, 2)
    return all(doubled.get(port.name, ())[:1] == (2,) for port in model.graph.output)


def _places(one: Sequence[int], two: Sequence[int], after: Sequence[int]) -> list[int]:
    """Where the batch may stand behind a reshape, which keeps the distance in memory from sample to sample.

    An axis of 1 at that distance is the batch's own. Else it has become part of a neighbour, of either.
    """
    changed = [axis for axis in range(len(one)) if one[axis] != two[axis]]
    if len(changed) != 1 or two[changed[0]] != 2 * one[changed[0]]:
        return []
    distances = {math.prod(one[changed[0] :]), math.prod(one[changed[0] + 1 :])}
    outermost = [axis for axis in range(len(after)) if math.prod(after[axis:]) in distances]
    innermost = [axis for axis in range(len(after)) if math.prod(after[axis + 1 :]) in distances]
    own = [axis for axis in outermost if after[axis] == 1]
    return own or outermost + innermost


def _best(model: Any, places: Sequence[int], write: Callable[[int], None]) -> int:
    """The place with which most shapes of the graph for two samples follow; of equals the first."""
    if len(places) == 1:
        return places[0]
    follow = []
    for place in places:
        write(place)
        follow.append(len(_shapes(model, 2)))
    return places[follow.index(max(follow))]


def _shapes(model: Any, batch: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that is known for so many samples."""
    import onnx

    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(_without_weights(model))
    graph = skeleton.graph
    del graph.value_info[:]
    for port in graph.input[: len(model.graph.input)]:  # weights stand behind
        port.type.tensor_type.shape.dim[0].dim_value = batch
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
        if math.prod(each.dims) > MAX_SHAPE_VALUES:
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


def _same(content: bytes, freed: bytes, near: float) -> bool:
    """Whether both give the same alone, and the freed one gives two samples at once what each gets alone.

    Without ONNX Runtime's own changes to the graph: on every processor the verdict is the same.
    """
    try:
        before, after = _session(content), _session(freed)
        samples = {
            each.name: _samples((2 * PAIRS, *each.shape[1:]), each.type == "tensor(int32)")
            for each in before.get_inputs()
        }
        alone, again, pairs = (
            np.concatenate([join(one.run(None, {name: x[place : place + size] for name, x in samples.items()}))
                            for place in range(0, 2 * PAIRS, size)])
            for one, size in ((before, 1), (after, 1), (after, 2))
        )  # fmt: skip
    except runtime_errors():  # it does not run for two samples, or gives no row for each
        return False
    if pairs.shape != alone.shape:
        return False
    limit = near * np.abs(alone[::2] - alone[1::2]).max()
    return bool(np.abs(pairs - alone).max() <= limit and np.abs(again - alone).max() <= limit)  # a NaN is no match


def _samples(shape: tuple[int, ...], ids: bool) -> np.ndarray:
    """Random numbers float32, or token ids int32 that every vocabulary has."""
    random = np.random.default_rng(0)
    if ids:
        return random.integers(0, FEWEST_IDS, shape).astype(np.int32)
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


def take_raw_bytes(content: bytes, found: Affine | str, sources: tuple[TensorSpec, ...]) -> FoldResult:
    """The file that takes bytes, or as it is, with its inputs, and what became of the steps, in words.

    Parameters
    ----------
    content
        The file.
    found
        The steps, or why they cannot be folded, from `fold_preprocess.by_channel`.
    sources
        Its inputs.

    They cost ONNX Runtime less time than the runner needs to look a picture's bytes up channel by channel. The file
    says of itself what it makes of a byte (`byte_inputs`).
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if isinstance(found, str):
        return content, sources, f"not folded: {found}"
    if len(sources) != 1 or sources[0].dtype != "float32":
        return content, sources, f"not folded: the file has {len(sources)} inputs, or one that is not float32"
    [source], channels = sources, len(found.scale)
    if channels > 1 and source.layout not in ("NCHW", "NHWC"):
        return content, sources, f"not folded: the input's layout is {source.layout}"
    model = onnx.load_model_from_string(content)
    graph = model.graph
    stored = {one.name for one in graph.initializer}
    known = {*stored, source.name}
    for node in (node for each in graphs_of(graph) for node in each.node):
        known |= {*node.input, *node.output}
    real, scale, scaled, shift, made = (
        unused_name(each, known) for each in ("real", "scale", "scaled", "shift", "made")
    )
    for node in (node for each in graphs_of(graph) for node in each.node):
        for place, name in enumerate(node.input):
            node.input[place] = made if name == source.name else name
    sides = (1, channels, 1, 1) if channels > 1 and source.layout == "NCHW" else (channels,) if channels > 1 else ()
    for name, values in ((scale, found.scale), (shift, found.shift)):
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32).reshape(sides), name))
    front = [
        helper.make_node("Cast", [source.name], [real], name=real, to=TensorProto.FLOAT),
        helper.make_node("Mul", [real, scale], [scaled], name=scaled),
        helper.make_node("Add", [scaled, shift], [made], name=made),
    ]
    for place, node in enumerate(front):
        graph.node.insert(place, node)
    [port] = [one for one in graph.input if one.name == source.name]
    port.type.tensor_type.elem_type = TensorProto.UINT8
    helper.set_model_props(
        model, {byte_inputs.METADATA_KEY: byte_inputs.format_remark(found.scale.tolist(), found.shift.tolist())}
    )
    said = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    takes = (replace(source, dtype="uint8"),)
    return bytes(model.SerializeToString(deterministic=True)), takes, f"folded: the input takes bytes, {said}"


def input_placeholders(names: Sequence[str]) -> list[str]:
    """What the exporter calls the inputs, in their order, until `give`."""
    return [f"edgekit::input_{place}" for place in range(len(names))]


def give_input_names(model: Any, names: Sequence[str]) -> None:
    """Call the inputs of an exported model so, in place.

    Otherwise an input `output`, `linear` or `head.weight` would be a second definition of that name.
    """
    graphs = list(graphs_of(model.graph))
    known = {name for graph in graphs for name in _names(graph)}
    called = dict(zip(input_placeholders(names), names, strict=True))
    for name in names:
        if name in known:
            called[name] = unused_name(name, known | set(names))
            known.add(called[name])
    for graph in graphs:
        _rename(graph, called)


def _ports(graph: Any) -> Iterator[Any]:
    """All that has a name which is a tensor's."""
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from part


def _names(graph: Any) -> Iterator[str]:
    yield from (each.name for each in _ports(graph))
    yield from (name for node in graph.node for name in node.output)


def _rename(graph: Any, called: Mapping[str, str]) -> None:
    for each in _ports(graph):
        each.name = called.get(each.name, each.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = called.get(name, name)
