"""Cut a detector in ONNX before its decoding, so that it gives the distances and logits that `runner.boxes` decodes.

Exporters append the decoding of the boxes to the network: the distances from grid cells become corners or centres in
pixels, logits become probabilities, and all of them are concatenated in one output. In int8 that output has a single
scale, which cannot hold pixels and probabilities together. The tensors before the decoding can be quantized well.

The place to cut is found by evidence and not by the names of operators, which differ between exporters. The file is run
on a random image with its intermediate tensors as additional outputs. A tensor with four numbers for each point is the
distances if decoding it gives the boxes of the file, and a tensor with a number for each class is the logits if its
sigmoid gives the scores of the file. What matches is therefore proved for this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files import onnx as onnx_file
from edgekit.models.files import onnx_batch
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner import boxes
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import sigmoid32

BOX_TOLERANCE = 0.01
"""Pixels by which a decoded box may differ from the box in the file's output."""
SCORE_TOLERANCE = 1e-5
MAX_CHECKED_ROWS = 50
BOXES, LOGITS = "boxes", "logits"
"""Names of the outputs of a cut file."""
FINISHED = ("left", "top", "right", "bottom", "score", "class")


@dataclass(frozen=True)
class DetectorCut:
    """A detector that was cut before its decoding.

    Attributes
    ----------
    content
        The ONNX file with the outputs `boxes` (1, points, 4), distances in strides, and `logits` (1, points, classes).
    decoding
        What the outputs of the original file were, such as "centres and sizes in pixels, and probabilities".
    is_suppressed
        Whether the original file gives finished boxes, so that overlapping ones are not to be dropped again.
    """

    content: bytes
    decoding: str
    is_suppressed: bool


@dataclass(frozen=True)
class _Grid:
    """Points of one or more grids: their centres (points, 2) and strides (points, 1) in pixels.

    `place` are their rows in the outputs of the file.
    """

    centres: np.ndarray
    strides: np.ndarray
    place: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class _Tensor:
    """An intermediate tensor with a row for each point of a grid.

    `axes` is the order of axes that puts its columns last. Distances are divided by `divisor` to be in strides, and
    `shift` is subtracted from those to the right and the bottom and added to the others to start at the cells' centres.
    """

    name: str
    axes: tuple[int, ...]
    shape: tuple[int, int]
    divisor: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class _Form:
    """One way to read a file's outputs: corners (rows, 4) in pixels, and probabilities (rows, classes).

    If `is_finished`, the rows are chosen boxes instead of one for each point, and `scores` (rows, 1) are those of the
    class of the box.
    """

    description: str
    corners: np.ndarray
    scores: np.ndarray
    is_finished: bool = False

    def has_boxes(self, corners: np.ndarray, grid: _Grid) -> bool:
        """Whether corners (points, 4), decoded from a candidate, are those of the file."""
        if not self.is_finished:
            return _is_close(corners, self.corners[grid.place], BOX_TOLERANCE)
        rows = self.corners[:MAX_CHECKED_ROWS, None]
        return bool((np.abs(rows - corners).max(axis=2).min(axis=1) <= BOX_TOLERANCE).all())

    def has_scores(self, scores: np.ndarray, grid: _Grid) -> bool:
        """Whether probabilities (points, classes), from a candidate, are those of the file."""
        if not self.is_finished:
            return _is_close(scores, self.scores[grid.place], SCORE_TOLERANCE)
        rows = self.scores[:MAX_CHECKED_ROWS]
        return bool((np.abs(rows - scores.ravel()).min(axis=1) <= SCORE_TOLERANCE).all())


def cut_file(path: Path, kind: str, needed: TaskOutputs) -> DetectorCut | None:
    """Return the detector at `path` cut before its decoding, or None if it has no decoding that can be cut off.

    Raises
    ------
    ModelError
        The file does not run on an image of the size of the samples.
    """
    if kind != "onnx" or needed.task != "detection":
        return None
    import onnx

    content = onnx_file.onnx(path)
    ports = onnx_batch.describe_ports(onnx.load_model_from_string(content))
    if [port["shape"] for port in ports["inputs"]] != [[1, 3, *needed.size]]:
        return None  # the message about its input comes when it is opened
    return cut(content, needed.size, needed.classes)


def cut(content: bytes, size: Sequence[int], classes: int) -> DetectorCut | None:
    """Return the detector cut before its decoding, or None if no tensors of it are distances and logits.

    Parameters
    ----------
    content
        The ONNX file, for a batch of one image of fixed size, channels first.
    size
        Height and width of the image.
    classes
        Number of classes.

    Raises
    ------
    ModelError
        The file does not run on an image of this size.
    """
    import onnx

    model = onnx.load_model_from_string(content)
    outputs, tensors = _run(model, size)
    for form in _forms(outputs, classes):
        for grids in _grids(size, form):
            logits = [_find_logits(tensors, grid, form, classes) for grid in grids]
            if not all(logits):
                continue
            distances = [_find_distances(tensors, grid, form) for grid in grids]
            if all(distances):
                cut_content = _with_outputs(model, {BOXES: distances, LOGITS: logits})
                return DetectorCut(cut_content, form.description, form.is_finished)
    return None


def _forms(outputs: Sequence[np.ndarray], classes: int) -> Iterator[_Form]:
    """Yield the ways in which the outputs may hold boxes and probabilities."""
    tables = [
        table
        for output in outputs
        if output.ndim == 3 and output.shape[0] == 1 and output.dtype == np.float32
        for table in (output[0], output[0].T)
    ]
    pairs = [(table[:, :4], table[:, 4:]) for table in tables if table.shape[1] == boxes.BOX_SIDES + classes]
    pairs += [
        (box, score)
        for box in tables
        for score in tables
        if box.shape[1] == boxes.BOX_SIDES and score.shape == (len(box), classes) and box is not score
    ]
    for box, score in pairs:
        yield _Form("corners in pixels, and probabilities", box, score)
        yield _Form("centres and sizes in pixels, and probabilities", _from_centres(box), score)
    for table in tables:
        if table.shape[1] == len(FINISHED):
            yield _Form(
                "finished boxes: corners in pixels, score and class", table[:, :4], table[:, 4:5], is_finished=True
            )


def _grids(size: Sequence[int], form: _Form) -> Iterator[list[_Grid]]:
    """Yield the ways in which the points of a file may be spread over tensors.

    One tensor may have all points, or there is one for each grid. Grids come with the finest first, whatever their order
    in the outputs of the file.
    """
    for first in range(len(boxes.STRIDES)):
        for last in range(first + 1, len(boxes.STRIDES) + 1):
            strides = boxes.STRIDES[first:last]
            counts = [int(np.prod(boxes.grid_shape(size, stride))) for stride in strides]
            if form.is_finished:
                yield [_Grid(*boxes.centres_of_strides(size, strides))]
            elif sum(counts) == len(form.corners):
                yield [_Grid(*boxes.centres_of_strides(size, strides))]
                ends = np.cumsum(counts)
                reversed_ends = len(form.corners) - ends + counts
                for ends_in_file in (ends, reversed_ends):
                    yield [
                        _Grid(*boxes.centres_of_strides(size, [stride]), slice(int(end) - count, int(end)))
                        for stride, count, end in zip(strides, counts, ends_in_file, strict=True)
                    ]


def _find_logits(tensors: dict[str, np.ndarray], grid: _Grid, form: _Form, classes: int) -> _Tensor | None:
    """Return the tensor whose sigmoid gives the scores of the file at the points of a grid, or None."""
    for tensor, rows in _candidates(tensors, len(grid.centres), classes):
        if form.has_scores(sigmoid32(rows), grid):
            return tensor
    return None


def _find_distances(tensors: dict[str, np.ndarray], grid: _Grid, form: _Form) -> _Tensor | None:
    """Return the tensor whose decoding gives the boxes of the file at the points of a grid, or None.

    Distances may be in strides or, if there is one stride, in pixels, and they may start at the centre or at the top
    left corner of a cell.
    """
    has_one_stride = bool((grid.strides == grid.strides[0]).all())
    for tensor, rows in _candidates(tensors, len(grid.centres), boxes.BOX_SIDES):
        for divisor in (1.0, float(grid.strides[0, 0])) if has_one_stride else (1.0,):
            reaches = rows / np.float32(divisor) * grid.strides
            for shift in (0.0, 0.5):
                start = grid.centres - np.float32(shift) * grid.strides
                if form.has_boxes(np.concatenate([start - reaches[:, :2], start + reaches[:, 2:]], axis=1), grid):
                    return replace(tensor, divisor=divisor, shift=shift)
    return None


def _candidates(
    tensors: dict[str, np.ndarray], points: int, columns: int
) -> Iterator[tuple[_Tensor, np.ndarray]]:
    """Yield the tensors with these numbers of points and columns, as (points, columns)."""
    for name, values in tensors.items():
        if values.shape[0] != 1 or values.size != points * columns:
            continue
        if values.shape[-1] == columns:
            yield _Tensor(name, tuple(range(values.ndim)), (points, columns)), values.reshape(points, columns)
        if values.shape[1] == columns and values.ndim > 2:
            axes = (0, *range(2, values.ndim), 1)
            yield _Tensor(name, axes, (points, columns)), values.transpose(axes).reshape(points, columns)


def _is_close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    return one.shape == other.shape and bool(np.abs(one - other).max() <= tolerance)


def _from_centres(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], axis=1)


def _run(model: Any, size: Sequence[int]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Run a model on a random image; return its outputs, and its float32 intermediate tensors by name."""
    import onnx

    traced = onnx.ModelProto()
    traced.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    ranks = {
        each.name: len(each.type.tensor_type.shape.dim)
        for each in inferred.graph.value_info
        if each.type.tensor_type.HasField("shape")
    }
    known = {each.name for each in traced.graph.output}
    names = [
        name
        for node in traced.graph.node
        for name in node.output
        if name and name not in known and ranks.get(name, 3) in (2, 3, 4)
    ]
    traced.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    try:
        session = runner.session(traced.SerializeToString(), None)
        image = np.random.default_rng(0).random((1, 3, *size), dtype=np.float32)
        results = session.run(None, {session.get_inputs()[0].name: image})
    except runner.runtime_errors() as error:
        raise ModelError(f"it does not run on an image of {size[1]}×{size[0]} pixels: {error}") from None
    count = len(model.graph.output)
    tensors = dict(zip(names, results[count:], strict=True))
    return results[:count], {
        name: values
        for name, values in tensors.items()
        if isinstance(values, np.ndarray) and values.dtype == np.float32 and values.ndim > 1
    }


def _with_outputs(model: Any, outputs: dict[str, list[_Tensor]]) -> bytes:
    """Return the model with these outputs (1, points, columns), each joined from tensors, and without unused nodes."""
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.output[:]
    for name, tensors in outputs.items():
        parts = [f"{name}_{index}" for index in range(len(tensors))]
        for part, tensor in zip(parts, tensors, strict=True):
            _append_table(graph, tensor, part)
        graph.node.append(onnx.helper.make_node("Concat", parts, [name], axis=1))
        shape = [1, sum(tensor.shape[0] for tensor in tensors), tensors[0].shape[1]]
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    _drop_unused(graph)
    return bytes(result.SerializeToString(deterministic=True))


def _append_table(graph: Any, tensor: _Tensor, name: str) -> None:
    """Append nodes that make (1, points, columns) of a tensor, in place."""
    import onnx

    def constant(suffix: str, values: np.ndarray) -> str:
        graph.initializer.append(onnx.numpy_helper.from_array(values, f"{name}_{suffix}"))
        return f"{name}_{suffix}"

    source = tensor.name
    if tensor.divisor != 1:
        divisor = constant("divisor", np.float32(tensor.divisor))
        graph.node.append(onnx.helper.make_node("Div", [source, divisor], [f"{name}_in_strides"]))
        source = f"{name}_in_strides"
    if tensor.shift:
        offset = np.float32([tensor.shift, tensor.shift, -tensor.shift, -tensor.shift])
        columns_axis = tensor.axes[-1]
        offset = offset.reshape([-1 if axis == columns_axis else 1 for axis in range(len(tensor.axes))])
        graph.node.append(onnx.helper.make_node("Add", [source, constant("shift", offset)], [f"{name}_from_centres"]))
        source = f"{name}_from_centres"
    graph.node.append(onnx.helper.make_node("Transpose", [source], [f"{name}_rows"], perm=tensor.axes))
    shape = constant("shape", np.array([1, *tensor.shape], dtype=np.int64))
    graph.node.append(onnx.helper.make_node("Reshape", [f"{name}_rows", shape], [name]))


def _drop_unused(graph: Any) -> None:
    """Remove the nodes and weights that no output depends on, in place."""
    needed = {each.name for each in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
            needed |= {name for attribute in node.attribute for inner in attribute.g.node for name in inner.input}
    del graph.node[:]
    graph.node.extend(reversed(kept))
    weights = [each for each in graph.initializer if each.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    del graph.value_info[:]
