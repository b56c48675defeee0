"""An ONNX file that takes a sample's bytes: its affine preprocess steps are three operators in front.

They cost ONNX Runtime less time than the runner needs to look a picture's bytes up channel by channel. The file says of
itself what it makes of a byte (`byte_inputs`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.runner.backends import byte_inputs
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets.fold_preprocess import Affine
from edgekit.targets.onnx.subgraphs import graphs_of

Folded = tuple[bytes, tuple[TensorSpec, ...], str]


def fold(content: bytes, found: Affine | str, sources: tuple[TensorSpec, ...]) -> Folded:
    """The file that takes bytes, or as it is, with its inputs, and what became of the steps, in words.

    Parameters
    ----------
    content
        The file.
    found
        The steps, or why they cannot be folded, from `fold_preprocess.by_channel`.
    sources
        Its inputs.
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
    real, scale, scaled, shift, made = (_unused(each, known) for each in ("real", "scale", "scaled", "shift", "made"))
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
    helper.set_model_props(model, {byte_inputs.KEY: byte_inputs.remark(found.scale.tolist(), found.shift.tolist())})
    said = "one scale for all" if channels == 1 else f"a scale for each of {channels} channels"
    takes = (replace(source, dtype="uint8"),)
    return bytes(model.SerializeToString(deterministic=True)), takes, f"folded: the input takes bytes, {said}"


def _unused(name: str, known: set[str]) -> str:
    while name in known:
        name += "_"
    known.add(name)
    return name
