"""Two graphs of plain ONNX operators, with which a detector's file takes unchanged pictures and returns decoded boxes.

A bundle's model takes a preprocessed sample, and its outputs are decoded by `edgekit.runner.boxes` and `box_heads`.
Other programs can neither preprocess the sample nor decode the outputs. The graph in front of the model therefore turns
a picture into the model's input, and the graph behind it decodes the outputs into the centre and size of each box in
pixels, and a probability for each class.

All operators have the same form from opset 11 on, so that the graphs can be joined with files of different opsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner import box_heads, boxes
from edgekit.runner.box_heads import BoxHead, Part
from edgekit.runner.preprocess.transform import LUMA

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, TensorSpec

OLDEST_OPSET = 11
IR_VERSION = 8
BEFORE, BEHIND = "edgekit.picture.", "edgekit.boxes."
"""Prefixes of the names in the two graphs, so that they differ from those in the model's file."""
PICTURE, MODEL_INPUT = f"{BEFORE}input", f"{BEFORE}output"
"""Names of the input and the output of the first graph."""
DECODED = f"{BEHIND}output"
"""The name of the output of the second graph."""
LARGEST_BYTE = 255
BYTE_FACTOR = np.float32(1 / LARGEST_BYTE)
GREY_WEIGHTS, GREY_UNIT = (19595, 38470, 7471), 65536
"""Pillow's integer weights of red, green and blue. All sums are below 2²⁴, so float32 holds them exactly."""


def model_output(index: int) -> str:
    """Return the name that the second graph gives to an output of the model."""
    return f"{BEHIND}input{index}"


def input_graph(manifest: Manifest, takes_bytes: bool) -> Any:
    """Return the ONNX model from a picture to the input of a bundle's model.

    The picture `PICTURE` is float32 (1, 3, height, width), red first, with values from 0 to 1.

    Parameters
    ----------
    manifest
        The bundle's manifest; its samples are pictures.
    takes_bytes
        Whether the model's file contains the preprocess steps, and takes a picture's bytes.

    Raises
    ------
    ConversionError
        A preprocess step is neither a scale, a normalization nor a change of the channels.
    """
    graph = _Graph(BEFORE)
    spec, (height, width, channels) = manifest.input, manifest.raw.shape
    current = PICTURE
    if takes_bytes or channels == 1 or spec.dtype != "float32" or not _is_byte_scale(manifest.preprocess):
        current = graph.add("Round", graph.add("Mul", current, np.float32(LARGEST_BYTE)))
        current = _grey_bytes(graph, current) if channels == 1 else current
        current = current if takes_bytes else _steps(graph, current, manifest.preprocess, channels)
    if spec.layout != "NCHW":
        current = graph.add("Transpose", current, perm=[0, 2, 3, 1])
    if spec.dtype != "float32":
        current = graph.add("Cast", current, to=_elem_type(spec.dtype))
    graph.rename(current, MODEL_INPUT)
    return graph.model({PICTURE: ("float32", (1, 3, height, width))}, {MODEL_INPUT: (spec.dtype, spec.shape)})


def _is_byte_scale(steps: Sequence[Any]) -> bool:
    """Whether the steps divide bytes by 255 and do nothing else."""
    return len(steps) == 1 and steps[0]["step"] == "scale" and np.float32(steps[0]["factor"]) == BYTE_FACTOR


def _grey_bytes(graph: _Graph, colours: str) -> str:
    """Return the grey picture that Pillow makes of a coloured one, both with values from 0 to 255."""
    total = graph.add("Add", _weighted_sum(graph, colours, GREY_WEIGHTS), np.float32(GREY_UNIT // 2))
    return graph.add("Floor", graph.add("Div", total, np.float32(GREY_UNIT)))


def _weighted_sum(graph: _Graph, colours: str, weights: Sequence[float]) -> str:
    """Return the weighted sum of the channels of a picture, added in their order."""
    parts = [
        graph.add("Mul", graph.slice(colours, channel, channel + 1, axis=1), np.float32(weight))
        for channel, weight in enumerate(weights)
    ]
    return graph.add("Add", graph.add("Add", parts[0], parts[1]), parts[2])


def _steps(graph: _Graph, current: str, steps: Sequence[Any], channels: int) -> str:
    for step in steps:
        if step["step"] == "scale":
            current = graph.add("Mul", current, np.float32(step["factor"]))
        elif step["step"] == "normalize":
            mean, std = (np.array(step[key], dtype=np.float32).reshape(1, -1, 1, 1) for key in ("mean", "std"))
            current = graph.add("Div", graph.add("Sub", current, mean), std)
        elif step["step"] == "channels":
            if step["count"] > channels:
                current = graph.add("Concat", *[current] * step["count"], axis=1)
            elif step["count"] < channels:
                current = _weighted_sum(graph, current, LUMA)
            channels = step["count"]
        elif step["step"] == "bgr":
            planes = [graph.slice(current, channel, channel + 1, axis=1) for channel in (2, 1, 0)]
            current = graph.add("Concat", *planes, axis=1)
        else:
            raise ConversionError(
                f"its preprocess step {step['step']!r} cannot be put into the model file; only scale, normalize, "
                "channels and bgr can"
            )
    return current


def output_graph(manifest: Manifest) -> Any:
    """Return the ONNX model from the outputs of a bundle's model to decoded boxes.

    The result `DECODED` is float32 (1, 4 + classes, points): x and y of the centre, width and height in pixels of the
    sample, and the probability of each class. Boxes end at the edges of the sample. Frigate takes the longer of the
    last two axes for the points. If there are not more points than rows (4 + classes), points with a probability of 0
    are therefore appended until there are.

    Raises
    ------
    BundleError
        The outputs are not those of the bundle's head.
    """
    graph = _Graph(BEHIND)
    head = _head(manifest)
    points, rows = box_heads.converted_shape(head._asdict(), [each.answer for each in manifest.outputs])
    parts = _parts(graph, manifest.outputs, head)
    sides = _clipped_sides(graph, _corners(graph, parts["boxes"], head, points), head.size)
    table = graph.add("Concat", *sides, _probabilities(graph, parts, head, points), axis=2)
    if points <= rows:
        table = graph.add("Concat", table, np.zeros((1, rows + 1 - points, rows), dtype=np.float32), axis=1)
    graph.rename(graph.add("Transpose", table, perm=[0, 2, 1]), DECODED)
    inputs = {model_output(index): (each.dtype, each.shape) for index, each in enumerate(manifest.outputs)}
    return graph.model(inputs, {DECODED: ("float32", (1, rows, max(points, rows + 1)))})


def _head(manifest: Manifest) -> BoxHead:
    """Return the head that a bundle declares. If it declares none, its outputs are distances and logits.

    These are in one output or in two.
    """
    if manifest.head is not None:
        return BoxHead(**manifest.head)
    parts: Sequence[Sequence[Part]] = (
        (("boxes", "classes"),) if len(manifest.outputs) == 1 else (("boxes",), ("classes",))
    )
    return BoxHead(tuple(manifest.raw.shape[:2]), len(manifest.labels), parts)


def _parts(graph: _Graph, outputs: Sequence[TensorSpec], head: BoxHead) -> dict[str, str]:
    """Return the parts of the outputs by name, each (1, points, columns) float32."""
    widths = box_heads.part_widths(head)
    parts: dict[str, str] = {}
    for index, (output, names) in enumerate(zip(outputs, head.parts, strict=True)):
        columns = sum(widths[name] for name in names)
        table = model_output(index)
        if output.dtype != "float32":
            table = graph.add("Cast", table, to=_elem_type("float32"))
        if columns == 1:
            table = graph.add("Reshape", table, np.array([1, -1, 1]))
        elif head.points_last:
            table = graph.add("Transpose", table, perm=[0, 2, 1])
        start = 0
        for name in names:
            is_whole = widths[name] == columns
            parts[name] = table if is_whole else graph.slice(table, start, start + widths[name], axis=2)
            start += widths[name]
    return parts


def _corners(graph: _Graph, raw: str, head: BoxHead, points: int) -> tuple[str, str]:
    """Return the left top and the right bottom corners of all boxes in pixels, each (1, points, 2)."""
    if head.boxes == "distances":
        if head.bins > 1:
            shares = graph.add("Softmax", graph.add("Reshape", raw, np.array([1, points, 4, head.bins])), axis=-1)
            mean = graph.add("MatMul", shares, np.arange(head.bins, dtype=np.float32).reshape(-1, 1))
            raw = graph.add("Reshape", mean, np.array([1, points, 4]))
        places, strides = boxes.point_centres(head.size, points)
        first, last = _halves(graph, graph.add("Mul", raw, strides))
        return graph.add("Sub", places, first), graph.add("Add", places, last)
    height, width = head.size
    if head.boxes == "corners_yx":
        raw = graph.add("Gather", raw, np.array([1, 0, 3, 2]), axis=2)
    if head.boxes in ("corners", "corners_yx", "centre"):
        if head.normalized:
            raw = graph.add("Mul", raw, np.array([width, height, width, height], dtype=np.float32))
        first, last = _halves(graph, raw)
        if head.boxes != "centre":
            return first, last
        if head.priors:
            first = graph.add("Add", first, box_heads.prior_points(head, points)[0])
        return _from_centres(graph, first, last)
    return _from_centres(graph, *_centres(graph, raw, head, points))


def _centres(graph: _Graph, raw: str, head: BoxHead, points: int) -> tuple[str, str]:
    """Return the centres and sizes of all boxes in pixels, each (1, points, 2).

    The model's outputs are relative to cells, anchors or priors, depending on the head.
    """
    half, two = np.float32(0.5), np.float32(2)
    if head.boxes == "anchors":
        cells, strides, sizes = box_heads.anchor_points(head, points)
        place, growth = _halves(graph, graph.add("Mul", graph.add("Sigmoid", raw), two))
        centres = graph.add("Mul", graph.add("Add", place, cells - half), strides)
        return centres, graph.add("Mul", graph.add("Mul", growth, growth), sizes)
    place, growth = _halves(graph, raw)
    if head.boxes == "exponential":
        places, strides = boxes.grid_centres(head.size, points)
        centres = graph.add("Add", graph.add("Mul", graph.add("Sub", place, half), strides), places)
        return centres, graph.add("Mul", graph.add("Exp", growth), strides)
    places, sizes = box_heads.prior_points(head, points)
    offset, rate = (np.float32(each) for each in head.variances)
    centres = graph.add("Add", graph.add("Mul", place, offset * sizes), places)
    return centres, graph.add("Mul", graph.add("Exp", graph.add("Mul", growth, rate)), sizes)


def _from_centres(graph: _Graph, centres: str, sizes: str) -> tuple[str, str]:
    half = graph.add("Mul", sizes, np.float32(0.5))
    return graph.add("Sub", centres, half), graph.add("Add", centres, half)


def _clipped_sides(graph: _Graph, corners: tuple[str, str], size: Sequence[int]) -> tuple[str, str]:
    """Return the centres and sizes of boxes that end at the edges of the sample."""
    height, width = size
    zero, limits = np.float32(0), np.array([width, height], dtype=np.float32)
    first, last = (graph.add("Min", graph.add("Max", corner, zero), limits) for corner in corners)
    centres = graph.add("Mul", graph.add("Add", first, last), np.float32(0.5))
    return centres, graph.add("Max", graph.add("Sub", last, first), zero)


def _probabilities(graph: _Graph, parts: dict[str, str], head: BoxHead, points: int) -> str:
    """Return the probability of each class, (1, points, classes)."""
    if head.scores == "index":
        return _one_hot(graph, parts, head, points)
    scores = parts["classes"]
    if head.scores == "softmax":
        shares = graph.add("Softmax", scores, axis=-1)
        if head.background is None:
            return shares
        columns = [column for column in range(head.classes + 1) if column != head.background]
        return graph.add("Gather", shares, np.array(columns), axis=2)
    if head.scores == "logits":
        scores = graph.add("Sigmoid", scores)
    if "objectness" not in parts:
        return scores
    objectness = parts["objectness"]
    if head.objectness == "logits":
        objectness = graph.add("Sigmoid", objectness)
    return graph.add("Mul", scores, objectness)


def _one_hot(graph: _Graph, parts: dict[str, str], head: BoxHead, points: int) -> str:
    """Return a column for each class with the scores of the finished boxes of this class, and 0 for all other boxes."""
    indices = np.arange(head.first_index, head.first_index + head.classes, dtype=np.float32).reshape(1, 1, -1)
    distance = graph.add("Abs", graph.add("Sub", parts["index"], indices))
    selected = graph.add("Cast", graph.add("Less", distance, np.float32(0.5)), to=_elem_type("float32"))
    scores = graph.add("Mul", selected, parts["score"])
    if "count" not in parts:
        return scores
    numbers = np.arange(points, dtype=np.float32).reshape(1, -1, 1)
    counted = graph.add("Less", numbers, graph.slice(parts["count"], 0, 1, axis=1))
    return graph.add("Mul", scores, graph.add("Cast", counted, to=_elem_type("float32")))


def _halves(graph: _Graph, table: str) -> tuple[str, str]:
    """Return the first two and the last two of four columns."""
    return graph.slice(table, 0, 2, axis=2), graph.slice(table, 2, 4, axis=2)


def _elem_type(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class _Graph:
    """An ONNX graph that grows node by node. All its names begin with the prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def add(self, operator: str, *inputs: str | np.ndarray | np.generic, **attributes: Any) -> str:
        """Add a node and return the name of its output. Inputs that are arrays become weights."""
        from onnx import helper

        names = [each if isinstance(each, str) else self._weight(np.asarray(each)) for each in inputs]
        output = f"{self._prefix}{operator}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [output], name=output, **attributes))
        return output

    def slice(self, table: str, start: int, stop: int, axis: int) -> str:
        """Add a slice of one axis."""
        return self.add("Slice", table, *(np.array([each]) for each in (start, stop, axis)))

    def rename(self, current: str, name: str) -> None:
        """Give a tensor another name."""
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [current], [name], name=f"{name}.end"))

    def model(
        self, inputs: Mapping[str, tuple[str, Sequence[int]]], outputs: Mapping[str, tuple[str, Sequence[int]]]
    ) -> Any:
        """Return the ONNX model with these inputs and outputs, each a dtype and a shape."""
        from onnx import helper

        ends = [
            [helper.make_tensor_value_info(name, _elem_type(dtype), shape) for name, (dtype, shape) in each.items()]
            for each in (inputs, outputs)
        ]
        graph = helper.make_graph(self._nodes, "boxes", *ends, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OLDEST_OPSET)], ir_version=IR_VERSION)

    def _weight(self, array: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"{self._prefix}weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name
