"""Convert the outputs of published detectors to the outputs that `boxes` decodes.

`boxes.Decoder` takes one row for each point: the distances to the four sides of a box, and a logit for each class.
Other detectors give corners in pixels, offsets from anchors, probabilities, an objectness, or finished boxes with the
index of their class. A `BoxHead` says how the outputs of a detector are read. A manifest has its fields as `head`, and
`HeadDecoder` converts the outputs.

The exponential and the logarithm are computed from additions, multiplications and divisions of float64, which IEEE 754
rounds in exactly one way, so that every machine gives the same bits. NumPy's own differ between processors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from edgekit.runner import boxes, instance_masks, keypoints, output_vector
from edgekit.runner.errors import BundleError

BoxCode = Literal["distances", "centre", "corners", "corners_yx", "anchors", "exponential", "priors"]
"""What the four numbers of a box are.

`distances`: from a point of a grid cell to the left, top, right and bottom side, in strides. With `bins` > 1 each is
the mean of a distribution over whole distances, given as logits (GFL, Li et al., NeurIPS 2020).
`centre`: x and y of the centre, width, height; with `priors`, x and y are those from the centre of a prior box, as in
BlazeFace. `corners`: left, top, right, bottom. `corners_yx`: top, left, bottom, right.
`anchors`: as in YOLOv5 and YOLOv7, relative to a grid cell and to the size of an anchor, behind a sigmoid.
`exponential`: as in YOLOX, an offset from the corner of a grid cell, and logarithms of width and height, in strides.
`priors`: as in SSD, offsets of the centre and logarithms of the size relative to a prior box, times `variances`.
"""
ScoreCode = Literal["logits", "probabilities", "softmax", "index"]
"""What the scores are: a logit or a probability for each class, the logits of a softmax that includes the background,
or, for finished boxes, a probability and the index of the class."""
Part = Literal[
    "boxes", "objectness", "classes", "score", "index", "count", "level", "keypoints", "coefficients", "prototypes"
]
"""What columns hold. `score` and `index` belong to finished boxes, of which the first `count` are valid. `level`, the
number of a point's grid, is not used. `prototypes` are an output of their own, with a row for each cell of their grid,
or with channels before or after the rows and columns of the grid."""
ALONE = [["count"], ["prototypes"]]
"""Parts of outputs that have no row for each point."""
MAX_INDEX = 2**31
MIN_PROBABILITY = 0.001
"""Lower probabilities are raised to this one, because the logit of 0 is infinite."""


class BoxHead(NamedTuple):
    """How the outputs of a detector are read.

    Attributes
    ----------
    size
        (height, width) of the sample.
    classes
        Number of classes, without a background.
    parts
        What the columns of each output hold, in order.
    boxes, scores
        A `BoxCode` and a `ScoreCode`.
    objectness
        Whether the part `objectness` is a logit or a probability, if there is one.
    points_last
        Whether outputs are (columns, points) instead of (points, columns).
    normalized
        Whether coordinates are shares of the width and the height of the sample instead of pixels.
    bins
        Number of logits for each distance.
    offset
        Where in a cell the point lies from which distances are measured, as a share of the cell: 0.5 is the centre.
    background
        Index of the background among the classes, which then have one column more.
    first_index
        Index of the first class, for finished boxes.
    anchors
        For each grid, finest first, the (width, height) of its anchors in pixels.
    priors
        Prior boxes of each grid, see `prior_points`.
    variances
        Two factors for offsets from prior boxes: one for centres, one for sizes.
    keypoints
        Number of keypoints of each box, whose columns are x, y and the visibility of one after another.
    keypoint_columns
        Columns of a keypoint: 3, or 2 without a visibility.
    visibility
        Whether the visibility is a logit or a probability.
    keypoint_scale
        With the box code `distances`: the factor and then the summand that make x and y strides from the centre of the
        cell. With all others, x and y are in pixels or normalized, and measured as the centre of the box is.
    coefficients
        Number of prototypes of masks, and of the coefficients of each box for them (`instance_masks`).
    """

    size: Sequence[int]
    classes: int
    parts: Sequence[Sequence[Part]] = (("boxes", "classes"),)
    boxes: BoxCode = "distances"
    scores: ScoreCode = "logits"
    objectness: Literal["logits", "probabilities"] = "logits"
    points_last: bool = False
    normalized: bool = False
    bins: int = 1
    offset: float = 0.5
    background: int | None = None
    first_index: int = 0
    anchors: Sequence[Sequence[Sequence[float]]] = ()
    priors: Sequence[Mapping[str, Any]] = ()
    variances: Sequence[float] = (0.1, 0.2)
    keypoints: int = 0
    keypoint_columns: int = 3
    visibility: Literal["logits", "probabilities"] = "logits"
    keypoint_scale: Sequence[float] = (1.0, 0.0)
    coefficients: int = 0


class HeadDecoder:
    """Converts joined outputs (n, …) of a detector to (n, points, 4 + classes), as `boxes.Decoder` takes them.

    With keypoints they become (n, points, 6 + 3 · keypoints), as `keypoints.Decoder` takes them, and with coefficients
    of masks (n, points + cells, 6 + coefficients), as `instance_masks.Decoder` takes them.

    Parameters
    ----------
    head
        The fields of a `BoxHead`; absent ones have their defaults.
    shapes
        Shapes of the outputs for one sample, in the order of `head.parts`.
    """

    def __init__(self, head: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> None:
        self.head, self.shapes = BoxHead(**head), [tuple(each) for each in shapes]
        self.shape = converted_shape(head, shapes)

    def __call__(self, joined: np.ndarray) -> np.ndarray:
        outputs = output_vector.split(joined, self.shapes)
        return np.stack([to_points(each, self.head) for each in zip(*outputs)])


def converted_shape(head: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return (rows, columns) of the converted outputs, for outputs of these shapes for one sample.

    Raises
    ------
    BundleError
        The shapes are not those of the head's parts.
    """
    fields = BoxHead(**head)
    if len(shapes) != len(fields.parts):
        raise BundleError(f"the head has {len(fields.parts)} outputs, but the model has {len(shapes)}")
    outputs = [(shape, list(names)) for shape, names in zip(shapes, fields.parts)]
    points = {_points(shape, names, fields) for shape, names in outputs if names not in ALONE}
    if len(points) != 1:
        raise BundleError(f"the outputs of the head have {' and '.join(map(str, sorted(points)))} points")
    if fields.coefficients:
        cells = sum(_cells(shape, fields) for shape, names in outputs if names == ALONE[1])
        return points.pop() + cells, boxes.FIELDS + fields.coefficients
    columns = boxes.FIELDS + keypoints.VALUES * fields.keypoints
    return points.pop(), columns if fields.keypoints else boxes.BOX_SIDES + fields.classes


def _points(shape: Sequence[int], names: Sequence[Part], head: BoxHead) -> int:
    """Return the number of points in an output that holds these parts."""
    columns = sum(part_widths(head)[name] for name in names)
    if columns == 1 and len(shape) == 1:
        return shape[0]
    across, down = (0, 1) if head.points_last and columns > 1 else (1, 0)
    if len(shape) != 2 or shape[across] != columns:
        expected = f"[{columns}, points]" if head.points_last else f"[points, {columns}]"
        raise BundleError(f"an output has the shape {list(shape)}, but its {', '.join(names)} need {expected}")
    return shape[down]


def _cells(shape: Sequence[int], head: BoxHead) -> int:
    """Return the number of cells in an output that holds prototypes, which must be those of a grid over the sample."""
    grid, count = boxes.grid_shape(head.size, instance_masks.STRIDE), head.coefficients
    allowed = [[math.prod(grid), count], [count, *grid], [*grid, count]]
    if list(shape) not in allowed:
        raise BundleError(
            f"the prototypes have the shape {list(shape)}, but they need {' or '.join(map(str, allowed))}"
        )
    return allowed[0][0]


def check_points(head: Mapping[str, Any], points: int) -> None:
    """Raise BundleError unless grids over the sample have this number of points, with the anchors of the head."""
    fields = BoxHead(**head)
    if fields.boxes == "anchors":
        anchor_points(fields, points)
    else:
        boxes.grid_strides(fields.size, points)


def part_widths(head: BoxHead) -> dict[str, int]:
    """Return the number of columns of each part."""
    return {
        "boxes": boxes.BOX_SIDES * head.bins,
        "classes": head.classes + (head.background is not None),
        "keypoints": head.keypoints * head.keypoint_columns,
        **dict.fromkeys(("coefficients", "prototypes"), head.coefficients),
        **dict.fromkeys(("objectness", "score", "index", "count", "level"), 1),
    }


def to_points(outputs: Sequence[np.ndarray], head: BoxHead) -> np.ndarray:
    """Convert a detector's outputs for one picture to (points, columns), see `HeadDecoder`.

    Raises
    ------
    BundleError
        The points are not those of the head's grids.
    """
    parts = split_parts(outputs, head)
    raw = parts["boxes"]
    if head.boxes == "distances":
        sides = raw if head.bins == 1 else mean_distances(raw, head.bins)
        shift = np.float32(0.5 - head.offset)
        sides = np.concatenate([sides[:, :2] + shift, sides[:, 2:] - shift], axis=1) if shift else sides
    else:
        sides = _as_distances(corners_of(raw, head), head.size)
    logits = _logits(parts, head)
    if not head.keypoints and not head.coefficients:
        return np.concatenate([sides, logits], axis=1)
    best = logits.argmax(axis=1)[:, None]
    table = [sides, np.take_along_axis(logits, best, axis=1), best.astype(np.float32) / boxes.CLASS_UNIT]
    if head.keypoints:
        return np.concatenate([*table, keypoint_offsets(parts["keypoints"], head)], axis=1)
    points = np.concatenate([*table, parts["coefficients"]], axis=1)
    return np.concatenate([points, np.pad(parts["prototypes"], ((0, 0), (boxes.FIELDS, 0)))])


def keypoint_offsets(raw: np.ndarray, head: BoxHead) -> np.ndarray:
    """Return the keypoints (points, 3 · keypoints), float32, as `keypoints.Decoder` takes them."""
    values = raw.reshape(len(raw), head.keypoints, head.keypoint_columns)
    if head.boxes == "distances":
        factor, summand = (np.float32(each) for each in head.keypoint_scale)
        places = values[..., :2] * factor + summand
    else:
        centres, strides = boxes.point_centres(head.size, len(raw))
        places = values[..., :2] * picture_scale(head)[:2]
        places = (_from_priors(places, head) if head.boxes == "centre" else places) - centres[:, None]
        places = places / strides[:, None]
    if head.keypoint_columns < keypoints.VALUES:
        seen = np.full((*values.shape[:2], 1), logit32(np.array(1)))
    else:
        seen = logit32(values[..., 2:]) if head.visibility == "probabilities" else values[..., 2:]
    return np.concatenate([places, seen], axis=2).reshape(len(raw), -1)


def split_parts(outputs: Sequence[np.ndarray], head: BoxHead) -> dict[str, np.ndarray]:
    """Return the parts by name, each (points, columns) float32."""
    widths = part_widths(head)
    parts: dict[str, np.ndarray] = {}
    for output, names in zip(outputs, head.parts):
        columns = sum(widths[name] for name in names)
        if list(names) == ALONE[1]:
            is_first = output.ndim > 2 and output.shape[0] == columns
            parts["prototypes"] = (output.transpose(1, 2, 0) if is_first else output).reshape(-1, columns)
            continue
        table = output.reshape(-1, 1) if columns == 1 else output
        table = table.T if head.points_last and columns > 1 else table
        start = 0
        for name in names:
            parts[name] = table[:, start : start + widths[name]]
            start += widths[name]
    return parts


def mean_distances(raw: np.ndarray, bins: int) -> np.ndarray:
    """Return the means (points, 4) of distributions over 0 to bins - 1, from logits (points, 4 · bins)."""
    logits = raw.reshape(len(raw), boxes.BOX_SIDES, bins)
    weights = exp(logits - logits.max(axis=2, keepdims=True))
    total, mean = weights[..., 0].copy(), np.zeros(weights.shape[:2])
    for distance in range(1, bins):  # one after another, because the order of NumPy's sums differs between processors
        total += weights[..., distance]
        mean += distance * weights[..., distance]
    return (mean / total).astype(np.float32)


def corners_of(raw: np.ndarray, head: BoxHead) -> np.ndarray:
    """Return left, top, right and bottom of boxes (points, 4) in pixels, float32; `head.boxes` is not "distances"."""
    scale = picture_scale(head)
    if head.boxes == "corners":
        return raw * scale
    if head.boxes == "corners_yx":
        return raw[:, [1, 0, 3, 2]] * scale
    if head.boxes == "centre":
        return _from_centres(_from_priors(raw[:, None, :2] * scale[:2], head)[:, 0], raw[:, 2:] * scale[:2])
    if head.boxes == "exponential":
        centres, strides = boxes.grid_centres(head.size, len(raw))
        return _from_centres((raw[:, :2] - np.float32(0.5)) * strides + centres, exp32(raw[:, 2:]) * strides)
    if head.boxes == "anchors":
        cells, strides, sizes = anchor_points(head, len(raw))
        shares = sigmoid32(raw)
        return _from_centres(
            (shares[:, :2] * np.float32(2) - np.float32(0.5) + cells) * strides,
            (shares[:, 2:] * np.float32(2)) ** 2 * sizes,
        )
    centres, sizes = prior_points(head, len(raw))
    offset, growth = (np.float32(each) for each in head.variances)
    return _from_centres(raw[:, :2] * offset * sizes + centres, exp32(raw[:, 2:] * growth) * sizes)


def picture_scale(head: BoxHead) -> np.ndarray:
    """Return what coordinates (x, y, x, y) are multiplied by to be pixels."""
    height, width = head.size
    return np.array([width, height, width, height] if head.normalized else [1, 1, 1, 1], dtype=np.float32)


def _from_priors(places: np.ndarray, head: BoxHead) -> np.ndarray:
    """Return places (points, n, 2) in pixels that are measured from prior boxes, if the head has any."""
    return places + prior_points(head, len(places))[0][:, None] if head.priors else places


def _from_centres(centres: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    half = sizes * np.float32(0.5)
    return np.concatenate([centres - half, centres + half], axis=1)


def _as_distances(corners: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return boxes (points, 4) in pixels as distances from the centres at which `boxes.Decoder` has its points."""
    centres, strides = boxes.point_centres(size, len(corners))
    return np.concatenate([centres - corners[:, :2], corners[:, 2:] - centres], axis=1) / strides


def _logits(parts: Mapping[str, np.ndarray], head: BoxHead) -> np.ndarray:
    """Return a logit for each class, (points, classes) float32."""
    if head.scores == "index":
        return _one_hot_logits(parts, head)
    scores = parts["classes"]
    if head.scores == "softmax":
        return _softmax_logits(scores, head.background)
    scores = scores[:, _foreground(scores.shape[1], head.background)]
    if "objectness" not in parts:
        return scores if head.scores == "logits" else logit32(scores)
    objectness = parts["objectness"]
    if head.objectness == "logits":
        objectness = sigmoid32(objectness)
    result = np.full(scores.shape, _MIN_LOGIT)
    likely = objectness[:, 0] > MIN_PROBABILITY
    chosen = scores[likely]
    result[likely] = logit32((sigmoid32(chosen) if head.scores == "logits" else chosen) * objectness[likely])
    return result


def _one_hot_logits(parts: Mapping[str, np.ndarray], head: BoxHead) -> np.ndarray:
    """Return logits of finished boxes: that of the score for the box's class, the lowest one for all other classes."""
    values = parts["index"][:, 0]
    # machines cast other values to different integers
    values = np.where(np.isfinite(values) & (np.abs(values) < MAX_INDEX), values, -1)
    indices = np.rint(values).astype(np.int64) - head.first_index
    valid = (indices >= 0) & (indices < head.classes)
    if "count" in parts:
        valid &= np.arange(len(indices)) < parts["count"][0, 0]
    result = np.full((len(indices), head.classes), _MIN_LOGIT)
    result[valid, indices[valid]] = logit32(parts["score"][:, 0])[valid]
    return result


def _softmax_logits(scores: np.ndarray, background: int | None) -> np.ndarray:
    """Return the logit of each class's share of a softmax (points, classes [+ 1])."""
    weights = exp(scores - scores.max(axis=1, keepdims=True))
    total = weights[:, 0].copy()
    for column in range(1, weights.shape[1]):
        total += weights[:, column]
    columns = _foreground(weights.shape[1], background)
    return logit32((weights[:, columns] / total[:, None]).astype(np.float32))


def _foreground(columns: int, background: int | None) -> list[int]:
    """Return the columns of the classes without that of the background."""
    return [column for column in range(columns) if column != background]


def anchor_points(head: BoxHead, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cell (column, row), stride and anchor size of every point, each (points, 2) or (points, 1) float32.

    The points are ordered by grid, then anchor, row and column. Raises BundleError if no grids have that many points.
    """
    height, width = head.size
    return _anchor_points((height, width), _as_tuples(head.anchors), points)


def prior_points(head: BoxHead, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres and sizes (points, 2) of all prior boxes, in pixels and float32.

    Raises BundleError if the head does not have `points` prior boxes.
    """
    height, width = head.size
    return _prior_points((height, width), tuple(_hashable(each) for each in head.priors), points)


@lru_cache(maxsize=4)
def _anchor_points(
    size: tuple[int, int], anchors: tuple[tuple[tuple[float, float], ...], ...], points: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    for first in range(len(boxes.STRIDES) - len(anchors) + 1):
        strides = boxes.STRIDES[first : first + len(anchors)]
        grids = [boxes.grid_shape(size, stride) for stride in strides]
        if sum(rows * columns * len(each) for (rows, columns), each in zip(grids, anchors)) == points:
            break
    else:
        counts = " and ".join(str(len(each)) for each in anchors)
        raise BundleError(f"{points} points for {size[1]}×{size[0]} pixels: no grids with {counts} anchors have them")
    cells, widths, sizes = [], [], []
    for (rows, columns), stride, pairs in zip(grids, strides, anchors):
        y, x = np.mgrid[:rows, :columns]
        for pair in pairs:
            cells.append(np.stack([x, y], axis=-1).reshape(-1, 2))
            widths.append(np.full((rows * columns, 1), stride))
            sizes.append(np.broadcast_to(np.array(pair), (rows * columns, 2)))
    return tuple(np.concatenate(each).astype(np.float32) for each in (cells, widths, sizes))  # type: ignore[return-value]


@lru_cache(maxsize=4)
def _prior_points(size: tuple[int, int], priors: tuple[Any, ...], points: int) -> tuple[np.ndarray, np.ndarray]:
    height, width = size
    centres, sizes = [], []
    for grid in (dict(each) for each in priors):
        rows, columns = grid["cells"]
        y, x = np.mgrid[:rows, :columns] + 0.5
        centre = np.stack([x * grid["step"][1], y * grid["step"][0]], axis=-1).reshape(-1, 1, 2)
        shapes = np.array(grid["sizes"], dtype=np.float64).reshape(1, -1, 2)
        centres.append(np.broadcast_to(centre, (rows * columns, shapes.shape[1], 2)).reshape(-1, 2))
        sizes.append(np.broadcast_to(shapes, (rows * columns, shapes.shape[1], 2)).reshape(-1, 2))
    result = tuple(np.concatenate(each).astype(np.float32) for each in (centres, sizes))
    if len(result[0]) != points:
        raise BundleError(f"{points} points, but the prior boxes of the head are {len(result[0])} for {width}×{height}")
    return result  # type: ignore[return-value]


def _as_tuples(anchors: Sequence[Sequence[Sequence[float]]]) -> tuple[tuple[tuple[float, float], ...], ...]:
    return tuple(tuple((pair[0], pair[1]) for pair in grid) for grid in anchors)


def _hashable(grid: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (key, tuple(tuple(each) if isinstance(each, (list, tuple)) else each for each in value))
        for key, value in grid.items()
    )


def exp(x: np.ndarray) -> np.ndarray:
    """Return e to the power of `x`, float64, with the same bits on every machine; inputs are limited to ±700."""
    x = np.clip(x.astype(np.float64), -700, 700)
    halves = np.rint(x * _LOG2_E)
    rest = x - halves * _LN_2_HIGH
    rest -= halves * _LN_2_LOW
    result = np.full_like(rest, _EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        result *= rest
        result += term
    return np.ldexp(result, halves.astype(np.int32))


def log(x: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of `x` > 0, float64, with the same bits on every machine."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    is_low = mantissa < _SQRT_HALF
    mantissa = np.where(is_low, mantissa * 2, mantissa)
    exponent = exponent - is_low
    share = (mantissa - 1) / (mantissa + 1)
    square = share * share
    result = np.full_like(share, _LOG_TERMS[0])
    for term in _LOG_TERMS[1:]:
        result *= square
        result += term
    return result * share * 2 + exponent * _LN_2_HIGH + exponent * _LN_2_LOW


def exp32(x: np.ndarray) -> np.ndarray:
    """`exp`, rounded to float32."""
    return exp(np.minimum(x, np.float32(80))).astype(np.float32)


def sigmoid32(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), rounded to float32."""
    return (1 / (1 + exp(-x))).astype(np.float32)


def logit32(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)), rounded to float32; p is limited to `MIN_PROBABILITY` and 1 - 2⁻²⁴."""
    p = np.clip(probability.astype(np.float64), MIN_PROBABILITY, 1 - 2.0**-24)
    return log(p / (1 - p)).astype(np.float32)


_LOG2_E, _LN_2_HIGH, _LN_2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_SQRT_HALF = math.sqrt(0.5)
_EXP_TERMS = tuple(1 / math.factorial(power) for power in range(13, -1, -1))
_LOG_TERMS = tuple(1 / (2 * power + 1) for power in range(10, -1, -1))
_MIN_LOGIT = logit32(np.array(MIN_PROBABILITY))
