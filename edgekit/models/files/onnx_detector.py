"""Cut a detector in ONNX before its decoding.

Exporters append the decoding of the boxes to the network: the distances from grid cells become corners or centres in
pixels, logits become probabilities, and all of them are concatenated in one output. In int8 that output has a single
scale, which cannot hold pixels and probabilities together. The tensors before the decoding can be quantized well.

The place to cut is found by evidence and not by the names of operators, which differ between exporters. The file is run
on an image with its intermediate tensors as additional outputs. A tensor with four numbers for each point is the
code of the boxes if decoding it gives the boxes of the file, and a tensor with a number for each class is the logits if
its sigmoid gives the scores of the file. The values of the file itself therefore prove that the place is right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.detector_forms import Form
from edgekit.runner import boxes
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import BoxCode, BoxHead, exp32, mean_distances, sigmoid32

BOX_TOLERANCE = 0.02
"""Pixels by which a decoded box may differ from the box in the file's output."""
SCORE_TOLERANCE = 1e-5
FAR = 2000.0
"""Pixels up to which coordinates are compared with a fixed tolerance."""
MAX_CHECKED_ROWS = 50
MAX_ANCHORS = 9
"""Largest number of anchors in a cell."""
SUPPRESSION = "NonMaxSuppression"
"""The operator that drops overlapping boxes. The runner does so after the cut."""
BOXES, SCORES, KEYPOINTS, COEFFICIENTS, PROTOTYPES = "boxes", "scores", "keypoints", "coefficients", "prototypes"
"""Names of the outputs of a cut file."""
KEYPOINT_SCALES = ((2.0, -0.5), (1.0, 0.0))
"""The factor and the summand that make x and y strides from the centre of a cell, as in YOLOv8 and later ones."""
HEAD, DECODING = "edgekit.head", "edgekit.decoding"
"""Keys of the metadata of a cut file, if a manifest needs a `head` that says how its outputs are read."""
Columns = tuple[int, int]
Trace = tuple[list[np.ndarray], dict[str, np.ndarray]]
"""The outputs of a file for one image, and its intermediate tensors by name."""


@dataclass(frozen=True)
class _Grid:
    """Points of one or more grids: their centres (points, 2) and strides (points, 1) in pixels.

    Each cell has `anchors` points, and all cells with the first anchor come first. `place` are the rows of the points
    in the outputs of the file.
    """

    centres: np.ndarray
    strides: np.ndarray
    anchors: int = 1
    place: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class _Tensor:
    """An intermediate tensor that has, after a reshape and a transposition, a row for each point of a grid.

    `columns` are the first column that is used, and the one after the last. Distances in the tensor become strides when
    they are divided by `divisor`. `shift` is then added to those to the left and the top, and subtracted from those to
    the right and the bottom, so that all of them start at the centres of the cells.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    rows: int
    columns: Columns
    divisor: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True)
class _Boxes:
    """The tensor with the boxes of a grid, in `code`. The code "anchors" has `anchors`, (width, height) in pixels."""

    tensor: _Tensor
    code: BoxCode
    anchors: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class _Scores:
    """The tensors with the logits of the classes, and of the objectness if there is one, and the probabilities."""

    probabilities: np.ndarray = field(repr=False, compare=False)
    classes: _Tensor
    objectness: _Tensor | None = None


@dataclass(frozen=True)
class _Keypoints:
    """The tensor with the codes of the keypoints, and their `BoxHead.keypoint_scale`."""

    tensor: _Tensor
    scale: tuple[float, float]


def cut(content: bytes, form: Form, tensors: dict[str, np.ndarray]) -> tuple[bytes, BoxHead | None] | None:
    """Return the file cut before its decoding, and the head that the cut file has.

    The head is None if the outputs are what `edgekit.runner.boxes` decodes: distances in strides and logits. The whole
    result is None if no tensors are proved to be the codes of the boxes and the logits.

    Parameters
    ----------
    content
        The ONNX file, for a batch of one image of fixed size, channels first.
    form
        How the outputs of the file are read.
    tensors
        The intermediate tensors for the same image as the outputs that `form` reads; see `trace`.
    """
    import onnx

    classes, source = form.head.classes, onnx.load_model_from_string(content)
    keeps_best = form.is_finished and not _suppresses(source)
    for grids in _grids(form):
        scores = [_find_scores(tensors, grid, form, classes) for grid in grids]
        found_scores = [each for each in scores if each is not None]
        if len(found_scores) < len(grids) or (keeps_best and not _are_best(form, found_scores)):
            continue
        places = [_find_boxes(tensors, grid, form, classes) for grid in grids]
        found_places = [each for each in places if each is not None]
        if len(found_places) == len(grids) and len({each.code for each in found_places}) == 1:
            points = [_find_keypoints(tensors, grid, form) for grid in grids] if form.head.keypoints else []
            found_points = [each for each in points if each is not None]
            if len(found_points) < len(points) or (found_points and found_places[0].code != "distances"):
                continue
            weights = [_find_coefficients(tensors, grid, form) for grid in grids] if form.head.coefficients else []
            found_weights = [each for each in weights if each is not None]
            if len(found_weights) < len(weights):
                continue
            head = _head(form, found_places, found_scores, found_points)
            if head is not None:
                facts = {HEAD: json.dumps(head._asdict()), DECODING: json.dumps(form.description)}
                onnx.helper.set_model_props(source, facts)
            outputs = {
                BOXES: [[each.tensor] for each in found_places],
                SCORES: [[*filter(None, [each.objectness]), each.classes] for each in found_scores],
                KEYPOINTS: [[each.tensor] for each in found_points],
                COEFFICIENTS: [[each] for each in found_weights],
                PROTOTYPES: [[_prototypes(source, form)]] if found_weights else [],
            }
            return _with_outputs(source, outputs), head
    return None


def _head(
    form: Form, places: Sequence[_Boxes], scores: Sequence[_Scores], points: Sequence[_Keypoints]
) -> BoxHead | None:
    code, has_objectness = places[0].code, scores[0].objectness is not None
    if code == "distances" and not has_objectness and form.head.bins == 1 and not points and not form.head.coefficients:
        return None
    head = BoxHead(
        form.head.size,
        form.head.classes,
        (("boxes",), ("objectness", "classes") if has_objectness else ("classes",)),
        code,
        "logits",
        bins=form.head.bins,
        offset=form.head.offset,
        anchors=tuple(each.anchors for each in places) if code == "anchors" else (),
    )
    if form.head.coefficients:
        return head._replace(
            parts=(*head.parts, ("coefficients",), ("prototypes",)), coefficients=form.head.coefficients
        )
    if not points:
        return head
    return head._replace(
        parts=(*head.parts, ("keypoints",)),
        keypoints=form.head.keypoints,
        keypoint_columns=form.head.keypoint_columns,
        keypoint_scale=points[0].scale,
    )


def _grids(form: Form) -> Iterator[list[_Grid]]:
    """Yield the ways in which the points of a file may be spread over tensors.

    One tensor may have all points, or there is one for each grid. Grids come with the finest first, whatever their
    order in the outputs of the file.
    """
    size, rows = form.head.size, len(form.corners)
    if form.is_finished:  # the most grids first, because a few of the grids may also explain all boxes of one image
        ranges = sorted(combinations(range(len(boxes.STRIDES) + 1), 2), key=lambda ends: ends[0] - ends[1])
        for first, last in ranges:
            yield [_Grid(*boxes.centres_of_strides(size, boxes.STRIDES[first:last]))]
        return
    for first in range(len(boxes.STRIDES)):
        for last in range(first + 1, len(boxes.STRIDES) + 1):
            strides = boxes.STRIDES[first:last]
            cells = [int(np.prod(boxes.grid_shape(size, stride))) for stride in strides]
            anchors, rest = divmod(rows, sum(cells))
            if rest or not 1 <= anchors <= MAX_ANCHORS:
                continue
            if anchors == 1:
                yield [_Grid(*boxes.centres_of_strides(size, strides))]
            counts = anchors * np.array(cells)
            ends = np.cumsum(counts)
            for ends_in_file in (ends, rows - ends + counts):
                yield [
                    _grid(size, stride, anchors, slice(int(end - count), int(end)))
                    for stride, count, end in zip(strides, counts, ends_in_file, strict=True)
                ]


def _grid(size: Sequence[int], stride: int, anchors: int, place: slice) -> _Grid:
    centres, strides = boxes.centres_of_strides(size, [stride])
    return _Grid(np.tile(centres, (anchors, 1)), np.tile(strides, (anchors, 1)), anchors, place)


def _has_boxes(form: Form, corners: np.ndarray, grid: _Grid) -> bool:
    """Whether corners (points, 4), decoded from a candidate, are those of the file."""
    if not form.is_finished:
        return _is_close(corners, form.corners[grid.place], BOX_TOLERANCE)
    rows = form.corners[:MAX_CHECKED_ROWS, None]
    return bool((np.abs(rows - corners).max(axis=2).min(axis=1) <= BOX_TOLERANCE).all())


def _has_scores(form: Form, scores: np.ndarray, grid: _Grid) -> bool:
    """Whether probabilities (points, classes), from a candidate, are those of the file."""
    if not form.is_finished:
        return _is_close(scores, form.scores[grid.place], SCORE_TOLERANCE)
    assert form.kinds is not None
    rows, kinds = form.scores[:MAX_CHECKED_ROWS], form.kinds[:MAX_CHECKED_ROWS]
    return bool((np.abs(rows - scores[:, kinds].T).min(axis=1) <= SCORE_TOLERANCE).all())


def _find_scores(tensors: dict[str, np.ndarray], grid: _Grid, form: Form, classes: int) -> _Scores | None:
    """Return the tensors whose sigmoids give the scores of the file at the points of a grid, or None."""
    candidates = list(_candidates(tensors, grid, classes, _class_columns(classes, form.head.bins)))
    for tensor, rows in candidates:
        if _has_scores(form, probabilities := sigmoid32(rows), grid):
            return _Scores(probabilities, tensor)
    objectness = list(_candidates(tensors, grid, 1, {1: (0, 1), 5 + classes: (4, 5)}))
    for tensor, rows in candidates:
        probabilities = sigmoid32(rows)
        for other, other_rows in objectness:
            if _has_scores(form, scores := probabilities * sigmoid32(other_rows), grid):
                return _Scores(scores, tensor, other)
    return None


def _are_best(form: Form, scores: Sequence[_Scores]) -> bool:
    """Whether the finished boxes of a file are the most probable of all points.

    A file that drops some of them in a way of its own must not be cut, because the cut would bring them back.
    """
    best = np.sort(np.concatenate([each.probabilities.ravel() for each in scores]))[::-1][: form.rows]
    return _is_close(np.sort(form.scores.ravel())[::-1], best, SCORE_TOLERANCE)


def _class_columns(classes: int, bins: int) -> dict[int, Columns]:
    """Return which columns of a tensor hold the classes, by the number of columns that the tensor has."""
    if bins > 1:
        return {classes: (0, classes), classes + boxes.BOX_SIDES * bins: (0, classes)}
    return {classes: (0, classes), 5 + classes: (5, 5 + classes), 4 + classes: (4, 4 + classes)}


def _find_boxes(tensors: dict[str, np.ndarray], grid: _Grid, form: Form, classes: int) -> _Boxes | None:
    """Return the tensor whose decoding gives the boxes of the file at the points of a grid, or None."""
    if form.head.bins > 1:
        return _as_distributions(tensors, grid, form, classes)
    columns: dict[int, Columns] = {total: (0, 4) for total in (4, 4 + classes, 5 + classes)}
    for tensor, rows in _candidates(tensors, grid, boxes.BOX_SIDES, columns):
        found = _as_distances(tensor, rows, grid, form) or _as_exponential(tensor, rows, grid, form)
        if found := found or _as_anchors(tensor, rows, grid, form):
            return found
    return None


def _find_keypoints(tensors: dict[str, np.ndarray], grid: _Grid, form: Form) -> _Keypoints | None:
    """Return the tensor whose decoding gives the keypoints of the file at the points of a grid, or None."""
    assert form.keypoints is not None
    count, columns = form.keypoints.shape[1:]
    width = count * columns
    for tensor, rows in _candidates(tensors, grid, width, {width: (0, width)}):
        values = rows.reshape(-1, count, columns)
        for factor, summand in KEYPOINT_SCALES:
            places = (values[..., :2] * np.float32(factor) + np.float32(summand)) * grid.strides[:, None]
            places += grid.centres[:, None]
            if _has_keypoints(form, np.concatenate([places, sigmoid32(values[..., 2:])], axis=2), grid):
                return _Keypoints(tensor, (factor, summand))
    return None


def _has_keypoints(form: Form, keypoints: np.ndarray, grid: _Grid) -> bool:
    """Whether keypoints (points, keypoints, 2 or 3), decoded from a candidate, are those of the file."""
    assert form.keypoints is not None
    tolerances = np.array([BOX_TOLERANCE, BOX_TOLERANCE, SCORE_TOLERANCE])[: keypoints.shape[2]]
    if not form.is_finished:
        return bool((np.abs(keypoints - form.keypoints[grid.place]) <= tolerances).all())
    rows = form.keypoints[:MAX_CHECKED_ROWS]
    return all((np.abs(row - keypoints) <= tolerances).all(axis=(1, 2)).any() for row in rows)


def _find_coefficients(tensors: dict[str, np.ndarray], grid: _Grid, form: Form) -> _Tensor | None:
    """Return the tensor that has the coefficients of the file at the points of a grid, or None."""
    assert form.coefficients is not None
    width = form.coefficients.shape[1]
    for tensor, rows in _candidates(tensors, grid, width, {width: (0, width)}):
        if form.is_finished:
            apart = (np.abs(row - rows).max(axis=1).min() for row in form.coefficients[:MAX_CHECKED_ROWS])
            is_same = all(each <= SCORE_TOLERANCE for each in apart)
        else:
            is_same = _is_close(rows, form.coefficients[grid.place], SCORE_TOLERANCE)
        if is_same:
            return tensor
    return None


def _prototypes(model: Any, form: Form) -> _Tensor:
    """Return the prototypes of masks, which are an output of the file itself."""
    count, name = form.head.coefficients, model.graph.output[form.head.parts.index(("prototypes",))].name
    axes = (0, 2, 3, 1) if form.prototypes[0] == count else (0, 1, 2, 3)
    return _Tensor(name, (1, *form.prototypes), axes, math.prod(form.prototypes) // count, (0, count))


def _as_distributions(tensors: dict[str, np.ndarray], grid: _Grid, form: Form, classes: int) -> _Boxes | None:
    """Return the tensor whose distributions of distances give the boxes of the file, as in NanoDet, or None."""
    width = boxes.BOX_SIDES * form.head.bins
    columns: dict[int, Columns] = {width: (0, width), classes + width: (classes, classes + width)}
    for tensor, rows in _candidates(tensors, grid, width, columns):
        reaches = mean_distances(rows, form.head.bins) * grid.strides
        start = grid.centres - np.float32(0.5 - form.head.offset) * grid.strides
        if _has_boxes(form, np.concatenate([start - reaches[:, :2], start + reaches[:, 2:]], axis=1), grid):
            return _Boxes(tensor, "distances")
    return None


def _as_distances(tensor: _Tensor, rows: np.ndarray, grid: _Grid, form: Form) -> _Boxes | None:
    """Return the boxes if the tensor holds distances from the centres or from the top left corners of the cells.

    The distances may be in strides or, if all points have the same stride, in pixels.
    """
    has_one_stride = bool((grid.strides == grid.strides[0]).all())
    for divisor in (1.0, float(grid.strides[0, 0])) if has_one_stride else (1.0,):
        reaches = rows / np.float32(divisor) * grid.strides
        for shift in (0.0, 0.5):
            start = grid.centres - np.float32(shift) * grid.strides
            if _has_boxes(form, np.concatenate([start - reaches[:, :2], start + reaches[:, 2:]], axis=1), grid):
                return _Boxes(replace(tensor, divisor=divisor, shift=shift), "distances")
    return None


def _as_exponential(tensor: _Tensor, rows: np.ndarray, grid: _Grid, form: Form) -> _Boxes | None:
    """Return the boxes if they are offsets from cells and logarithms of sizes, as in YOLOX."""
    centres = (rows[:, :2] - np.float32(0.5)) * grid.strides + grid.centres
    half = exp32(rows[:, 2:]) * grid.strides / 2
    decoded = np.concatenate([centres - half, centres + half], axis=1)
    return _Boxes(tensor, "exponential") if _has_boxes(form, decoded, grid) else None


def _as_anchors(tensor: _Tensor, rows: np.ndarray, grid: _Grid, form: Form) -> _Boxes | None:
    """Return the boxes if they are relative to anchors, as in YOLOv5 and YOLOv7.

    The sizes of the anchors are computed from the boxes of the file.
    """
    if form.is_finished or (grid.strides != grid.strides[0]).any():
        return None
    shares = sigmoid32(rows)
    centres = (shares[:, :2] * 2 - 1) * grid.strides + grid.centres
    corners = form.corners[grid.place]
    if not _is_close(centres, (corners[:, :2] + corners[:, 2:]) / 2, BOX_TOLERANCE):
        return None
    factors = (shares[:, 2:] * 2) ** 2
    sizes = ((corners[:, 2:] - corners[:, :2]) / np.maximum(factors, np.float32(1e-9))).reshape(grid.anchors, -1, 2)
    anchors = np.median(sizes, axis=1)
    half = factors * np.repeat(anchors, sizes.shape[1], axis=0) / 2
    if not _has_boxes(form, np.concatenate([centres - half, centres + half], axis=1), grid):
        return None
    return _Boxes(tensor, "anchors", tuple((_rounded(width), _rounded(height)) for width, height in anchors))


def _rounded(pixels: float) -> float:
    """Return the side of an anchor without the rounding errors of the boxes that it was computed from."""
    return float(round(float(pixels), 2))


def _candidates(
    tensors: dict[str, np.ndarray], grid: _Grid, columns: int, columns_by_total: dict[int, Columns]
) -> Iterator[tuple[_Tensor, np.ndarray]]:
    """Yield the tensors with a row for each point of a grid, as (points, columns)."""
    rows, anchors = len(grid.centres), grid.anchors
    for name, values in tensors.items():
        for total, (start, stop) in columns_by_total.items():
            if values.shape[0] != 1 or values.size != rows * total:
                continue
            for shape, axes in _arrangements(values.shape, total, anchors):
                table = values.reshape(shape).transpose(axes).reshape(rows, total)
                yield _Tensor(name, shape, axes, rows, (start, stop)), table[:, start:stop]


def _arrangements(
    shape: tuple[int, ...], columns: int, anchors: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield shapes and orders of axes that put the columns of a tensor last, and its points in the order of a grid."""
    rank = len(shape)
    if shape[-1] == columns:
        yield shape, tuple(range(rank))
    if rank > 2 and shape[1] == columns:
        yield shape, (0, *range(2, rank), 1)
    if anchors > 1 and rank == 4 and shape[1] == anchors * columns:
        yield (1, anchors, columns, *shape[2:]), (0, 1, 3, 4, 2)
    if anchors > 1 and rank == 4 and shape[3] == anchors * columns:
        yield (1, *shape[1:3], anchors, columns), (0, 3, 1, 2, 4)


def _is_close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    """Whether values differ by at most the tolerance, which grows with values that float32 rounds more coarsely."""
    if one.shape != other.shape:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((np.abs(one - other) <= tolerance * np.maximum(1, np.abs(other) / FAR)).all())


def suppresses(content: bytes) -> bool:
    """Whether a model drops overlapping boxes itself."""
    import onnx

    return _suppresses(onnx.load_model_from_string(content))


def _suppresses(model: Any) -> bool:
    return any(node.op_type == SUPPRESSION for node in model.graph.node)


def trace(content: bytes, size: Sequence[int], image: np.ndarray | None = None) -> Trace:
    """Run a model on an image; return its outputs, and its float32 intermediate tensors by name.

    The image is (height, width, channels) as the network takes it; by default, it is random.

    Raises
    ------
    ModelError
        The file does not run on an image of this (height, width).
    """
    import onnx

    model = onnx.load_model_from_string(content)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    ranks = {
        each.name: len(each.type.tensor_type.shape.dim)
        for each in inferred.graph.value_info
        if each.type.tensor_type.HasField("shape")
    }
    known = {each.name for each in model.graph.output}
    names = [
        name
        for node in model.graph.node
        for name in node.output
        if name and name not in known and ranks.get(name, 3) in (2, 3, 4, 5)
    ]
    count = len(known)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    try:
        session = runner.session(model.SerializeToString(), None)
        source = session.get_inputs()[0]
        if image is None:
            x = np.random.default_rng(0).random((1, source.shape[1], *size), dtype=np.float32)
        else:
            x = np.ascontiguousarray(image.transpose(2, 0, 1)[None], dtype=np.float32)
        results = session.run(None, {source.name: x})
    except runner.runtime_errors() as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"does not run on an image of {size[1]}×{size[0]} pixels: {reason}") from None
    return results[:count], {
        name: values
        for name, values in zip(names, results[count:], strict=True)
        if isinstance(values, np.ndarray) and values.dtype == np.float32 and values.ndim > 1
    }


def _with_outputs(model: Any, outputs: dict[str, list[list[_Tensor]]]) -> bytes:
    """Return the model with these outputs by name, each (1, points, columns), and without unused nodes.

    For each grid there are one or more tensors, whose columns are joined. An output without tensors is left out.
    """
    import onnx

    graph = model.graph
    del graph.output[:]
    for node in graph.node:  # the file may have used the names of the new tensors
        node.input[:] = [_other_name(name) for name in node.input]
        node.output[:] = [_other_name(name) for name in node.output]
    for weight in graph.initializer:
        weight.name = _other_name(weight.name)
    for name, rows in outputs.items():
        if not rows:
            continue
        tables = []
        for level, tensors in enumerate(rows):
            columns = [f"{name}_{level}_{index}" for index in range(len(tensors))]
            for column, tensor in zip(columns, tensors, strict=True):
                _append_table(graph, tensor, column)
            tables.append(_concatenated(graph, columns, f"{name}_{level}", axis=2))
        _concatenated(graph, tables, name, axis=1, is_output=True)
        shape = [1, sum(each[0].rows for each in rows), sum(each.columns[1] - each.columns[0] for each in rows[0])]
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    _drop_unused(graph)
    return bytes(model.SerializeToString(deterministic=True))


def _other_name(name: str) -> str:
    """Return the name of one of the file's tensors after the cut; only names that a new tensor may have are changed."""
    reserved = (BOXES, SCORES, KEYPOINTS, COEFFICIENTS, PROTOTYPES)
    return f"{name}.file" if name.startswith(reserved) else name


def _concatenated(graph: Any, names: Sequence[str], result: str, axis: int, *, is_output: bool = False) -> str:
    """Append a concatenation, and return the name of its result; a single tensor that is no output stays as it is."""
    import onnx

    if len(names) == 1 and not is_output:
        return names[0]
    operator = "Concat" if len(names) > 1 else "Identity"
    graph.node.append(
        onnx.helper.make_node(operator, list(names), [result], **({"axis": axis} if len(names) > 1 else {}))
    )
    return result


def _append_table(graph: Any, tensor: _Tensor, name: str) -> None:
    """Append nodes that make (1, points, columns) of a tensor, in place."""
    import onnx

    current = _other_name(tensor.name)

    def append(operator: str, suffix: str, *inputs: np.ndarray, **attributes: Any) -> None:
        nonlocal current
        names = [current]
        for index, values in enumerate(inputs):
            constant = f"{name}_{suffix}_{index}"
            graph.initializer.append(onnx.numpy_helper.from_array(values, constant))
            names.append(constant)
        current = f"{name}_{suffix}"
        graph.node.append(onnx.helper.make_node(operator, names, [current], **attributes))

    start, stop = tensor.columns
    append("Reshape", "split", np.array(tensor.shape, dtype=np.int64))
    append("Transpose", "last", perm=tensor.axes)
    total = tensor.shape[tensor.axes[-1]]
    append("Reshape", "rows", np.array([1, tensor.rows, total], dtype=np.int64))
    if (start, stop) != (0, total):
        bounds = [np.array([bound], dtype=np.int64) for bound in (start, stop, 2)]
        append("Slice", "part", *bounds)
    if tensor.divisor != 1:
        append("Div", "in_strides", np.array(tensor.divisor, dtype=np.float32))
    if tensor.shift:
        append("Add", "from_centres", np.array([1, 1, -1, -1], dtype=np.float32) * np.float32(tensor.shift))
    graph.node.append(onnx.helper.make_node("Identity", [current], [name]))


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
