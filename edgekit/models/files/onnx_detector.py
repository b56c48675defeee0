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
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.runner import boxes
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import sigmoid32

BOX_TOLERANCE = 0.01
"""Pixels by which a decoded box may differ from the box in the file's output."""
SCORE_TOLERANCE = 1e-5
MAX_CHECKED_ROWS = 50
BOXES, LOGITS = "boxes", "logits"
"""Names of the outputs of a cut file."""


@dataclass(frozen=True)
class DetectorCut:
    """A detector that was cut before its decoding.

    Attributes
    ----------
    content
        The ONNX file with the outputs `boxes` (1, points, 4), distances in strides, and `logits` (1, points, classes).
    form
        What the outputs of the original file were, such as "centres in pixels and probabilities".
    is_suppressed
        Whether the original file gives finished boxes, so that overlapping ones are not to be dropped again.
    """

    content: bytes
    form: str
    is_suppressed: bool


@dataclass(frozen=True)
class _Tensor:
    """An intermediate tensor; `values` is (points, columns), and `is_columns_first` says that it was transposed."""

    name: str
    values: np.ndarray
    is_columns_first: bool


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
    points = _points(size)
    candidates = list(_tables(tensors, points))
    logits = [each for each in candidates if each.values.shape[1] == classes]
    distances = [each for each in candidates if each.values.shape[1] == boxes.BOX_SIDES]
    for form in _forms(outputs, classes):
        score = next((each for each in logits if form.has_scores(sigmoid32(each.values))), None)
        box = next((each for each in distances if form.has_boxes(_corners(each.values, size))), None)
        if score is not None and box is not None:
            return DetectorCut(_with_outputs(model, {BOXES: box, LOGITS: score}), form.description, form.is_finished)
    return None


@dataclass(frozen=True)
class _Form:
    """One way to read a file's outputs: corners (rows, 4) in pixels, and scores (rows, classes) or (rows,) of a class.

    `is_finished` says that the rows are chosen boxes instead of one for each point.
    """

    description: str
    corners: np.ndarray
    scores: np.ndarray
    is_finished: bool = False

    def has_boxes(self, corners: np.ndarray) -> bool:
        """Whether the boxes decoded from a candidate (points, 4) are those of the file."""
        if not self.is_finished:
            return _is_close(corners, self.corners, BOX_TOLERANCE)
        rows = self.corners[:MAX_CHECKED_ROWS, None]
        return bool((np.abs(rows - corners[None]).max(axis=2).min(axis=1) <= BOX_TOLERANCE).all())

    def has_scores(self, scores: np.ndarray) -> bool:
        """Whether the probabilities from a candidate (points, classes) are those of the file."""
        if not self.is_finished:
            return _is_close(scores, self.scores, SCORE_TOLERANCE)
        rows = self.scores[:MAX_CHECKED_ROWS, None]
        return bool((np.abs(rows - scores.ravel()[None]).min(axis=1) <= SCORE_TOLERANCE).all())


def _forms(outputs: Sequence[np.ndarray], classes: int) -> Iterator[_Form]:
    """Yield the ways in which the outputs may hold boxes and probabilities."""
    tables = [table for output in outputs for table in _as_tables(output)]
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
        if table.shape[1] == 6:
            yield _Form("finished boxes: corners in pixels, score, class", table[:, :4], table[:, 4], is_finished=True)


def _is_close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    return one.shape == other.shape and bool(np.abs(one - other).max() <= tolerance)


def _from_centres(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], axis=1)


def _corners(distances: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the corners in pixels of distances (points, 4) in strides."""
    centres, strides = boxes.grid_centres(size, len(distances))
    return np.concatenate([centres - distances[:, :2] * strides, centres + distances[:, 2:] * strides], axis=1)


def _points(size: Sequence[int]) -> set[int]:
    """Return the numbers of points that grids over an image of this size can have."""
    counts = [int(np.prod(boxes.grid_shape(size, stride))) for stride in boxes.STRIDES]
    return {sum(counts[first:last]) for first in range(len(counts)) for last in range(first + 1, len(counts) + 1)}


def _as_tables(output: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an output (1, rows, columns) as it is and transposed."""
    if output.ndim == 3 and output.shape[0] == 1 and output.dtype.kind == "f":
        yield output[0]
        yield output[0].T


def _tables(tensors: dict[str, np.ndarray], points: set[int]) -> Iterator[_Tensor]:
    """Yield the tensors with one row or one column for each point of some grids."""
    for name, values in tensors.items():
        if values.ndim == 3 and values.shape[0] == 1 and values.dtype == np.float32:
            if values.shape[1] in points:
                yield _Tensor(name, values[0], is_columns_first=False)
            if values.shape[2] in points:
                yield _Tensor(name, values[0].T, is_columns_first=True)


def _run(model: Any, size: Sequence[int]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Run a model on a random image; return its outputs, and its intermediate tensors of three axes by name."""
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
        if name and name not in known and ranks.get(name, 3) == 3
    ]
    traced.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    try:
        session = runner.session(traced.SerializeToString(), None)
        image = np.random.default_rng(0).random((1, 3, *size), dtype=np.float32)
        results = session.run(None, {session.get_inputs()[0].name: image})
    except runner.runtime_errors() as error:
        raise ModelError(f"it does not run on an image of {size[1]}×{size[0]} pixels: {error}") from None
    count = len(model.graph.output)
    return results[:count], dict(zip(names, results[count:], strict=True))


def _with_outputs(model: Any, outputs: dict[str, _Tensor]) -> bytes:
    """Return the model with these outputs, each (1, points, columns), and without what only its old outputs needed."""
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.output[:]
    for name, tensor in outputs.items():
        order = [0, 2, 1] if tensor.is_columns_first else [0, 1, 2]
        graph.node.append(onnx.helper.make_node("Transpose", [tensor.name], [name], perm=order))
        shape = [1, *tensor.values.shape]
        graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    _drop_unused(graph)
    return bytes(result.SerializeToString(deterministic=True))


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
