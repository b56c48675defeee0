"""Files of the small network, broken by hand: bytes edited in place, or nodes of an ONNX graph exchanged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.targets.float_ops import tflite_operators
from edgekit.targets.tflite import convert

CONVOLUTIONS = ("stem", "down", "first", "second", "depthwise", "mix")
DENSE = ("dense", "head")


def copy(folder: Path, out: Path) -> Path:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    return out


def edit_onnx(folder: Path, out: Path, edit: Callable[[OnnxFile], None]) -> Path:
    made = copy(folder, out)
    path = made / "model.onnx"
    file = OnnxFile(onnx.load(path))
    edit(file)
    path.write_bytes(file.model.SerializeToString())
    return made


class OnnxFile:
    """A graph, and its parts by the names of the network's layers."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, model.graph

    def node(self, layer: str) -> Any:
        kind, names = ("Conv", CONVOLUTIONS) if layer in CONVOLUTIONS else ("Gemm", DENSE)
        return [node for node in self.graph.node if node.op_type == kind][names.index(layer)]

    def only(self, kind: str, place: int = 0) -> Any:
        return [node for node in self.graph.node if node.op_type == kind][place]

    def values(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(next(one for one in self.graph.initializer if one.name == name))

    def set(self, name: str, values: np.ndarray) -> None:
        [place] = [place for place, one in enumerate(self.graph.initializer) if one.name == name]
        self.graph.initializer[place].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), name))

    def change(self, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.set(name, change(self.values(name)).astype(self.values(name).dtype))

    def replace(self, node: Any, kind: str, inputs: list[str], **attributes: Any) -> None:
        made = helper.make_node(kind, inputs, list(node.output), name=node.name, **attributes)
        node.CopyFrom(made)

    def attribute(self, node: Any, name: str, value: list[int]) -> None:
        kept = [one for one in node.attribute if one.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    def dequantizer(self, name: str) -> Any:
        """The node that gives this tensor; of a weight, the one that makes it float."""
        return next(node for node in self.graph.node if name in node.output)


def edit_tflite(folder: Path, out: Path, kind: str, place: int, edit: Callable[[list[Any], np.ndarray], None]) -> Path:
    """`edit` is given writable views of the constants of an operator, None for what is computed, and of its inputs."""
    from ai_edge_litert import schema_py_generated as schema

    made = copy(folder, out)
    path = made / convert.FILE
    content = path.read_bytes()
    index = [number for number, (_, _, _, own) in enumerate(tflite_operators(content)) if own == kind][place]
    edited = bytearray(content)
    model = schema.Model.GetRootAs(edited, 0)
    graph = model.Subgraphs(0)
    op = graph.Operators(index)
    views: list[Any] = []
    for number in range(op.InputsLength()):
        tensor = graph.Tensors(op.Inputs(number))
        data = model.Buffers(tensor.Buffer()).DataAsNumpy()
        kinds = {schema.TensorType.FLOAT32: np.float32, schema.TensorType.INT32: np.int32}
        dtype = kinds.get(tensor.Type(), np.int8)
        views.append(None if isinstance(data, int) else data.view(dtype).reshape(tensor.ShapeAsNumpy()))
    edit(views, op.InputsAsNumpy())
    path.write_bytes(bytes(edited))
    return made
