"""Recognise what the outputs of a published detector hold, from their shapes and from the values for one image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numpy as np

from edgekit.runner import boxes
from edgekit.runner.box_heads import (
    BoxCode,
    BoxHead,
    Part,
    converted_shape,
    corners_of,
    mean_distances,
    picture_scale,
    sigmoid32,
    split_parts,
)
from edgekit.runner.errors import BundleError

MIN_VALID = 0.9
"""Share of the boxes that must be valid in a form."""
MAX_SHARE = 2.0
"""Largest coordinate if coordinates are shares of the image. A box may reach beyond the image."""
SLACK = 0.5
"""How far the sides of a valid box may lie outside, as a share of the image."""
SUM_TOLERANCE = 1e-3
"""How far the sum of the probabilities of a softmax may be from 1."""
NEAR_STRIDES = 3.0
"""Median distance, in strides, of boxes from the cells that predict them, below which they belong to these cells."""
MAX_ANCHORS = 9
"""Largest number of anchors in a cell."""
NANODET_BINS = 8
"""Numbers for each side of a box in the output of NanoDet, which gives distributions."""
NANODET_PLUS_GRIDS = 4
"""NanoDet-Plus has a grid more than NanoDet, and the points of its cells are their top left corners."""
Parts = dict[str, np.ndarray]
NANODET: tuple[tuple[Part, ...], ...] = (("classes", "boxes"),)
FINISHED: tuple[Part, ...] = ("index", "score")
SEPARATE: tuple[tuple[Part, ...], ...] = (("boxes",), ("index",), ("score",), ("count",))
"""Finished boxes in outputs of their own, in whatever order."""
LAYOUTS: tuple[tuple[tuple[Part, ...], ...], ...] = (
    (("boxes", "classes"),),
    (("boxes", "objectness", "classes"),),
    (("boxes", "level", "classes"),),
    NANODET,
    (("boxes",), ("classes",)),
    (("classes",), ("boxes",)),
    (("boxes", "score", "index"),),
    *permutations(SEPARATE),
    *permutations(SEPARATE[:3]),
)
"""The parts that the outputs of detectors hold, the usual orders first."""
KEYPOINT_LAYOUTS: tuple[tuple[tuple[Part, ...], ...], ...] = (
    (("boxes", "classes", "keypoints"),),
    (("boxes", "score", "index", "keypoints"),),
    (("boxes",), ("classes",), ("keypoints",)),
)
"""The same for those that predict keypoints, too."""
TITLES: dict[BoxCode, str] = {
    "centre": "centres and sizes",
    "corners": "corners",
    "corners_yx": "corners with the top first",
    "exponential": "offsets from cells and logarithms of sizes",
    "distances": "distributions of distances",
}


@dataclass(frozen=True)
class Form:
    """One way to read the outputs of a file.

    Attributes
    ----------
    head
        How the outputs are read.
    corners
        The sides of the boxes in pixels, (rows, 4).
    scores
        Probabilities of the classes (rows, classes), multiplied by the objectness if there is one. Of finished boxes,
        those of their own class (rows, 1).
    valid_share
        Share of the boxes whose sides are in order and near the image.
    kinds
        The classes of finished boxes, (rows,).
    keypoints
        x and y in pixels and, if there is one, the visibility as a probability, (rows, keypoints, 2 or 3).
    """

    head: BoxHead
    corners: np.ndarray
    scores: np.ndarray
    valid_share: float
    kinds: np.ndarray | None = None
    keypoints: np.ndarray | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the boxes may be boxes at all."""
        return self.valid_share >= MIN_VALID

    @property
    def is_finished(self) -> bool:
        """Whether the boxes were already selected, each with its class."""
        return self.head.scores == "index"

    @property
    def scores_in_words(self) -> str:
        """What the scores are, in words."""
        has_objectness = any("objectness" in names for names in self.head.parts)
        kind = "a softmax" if self.head.scores == "softmax" else self.head.scores
        background = " with a background" if self.head.background is not None else ""
        return f"{'an objectness, ' if has_objectness else ''}and {kind}{background}"

    @property
    def description(self) -> str:
        """What the outputs hold, in words."""
        place = TITLES[self.head.boxes]
        if self.head.boxes in ("centre", "corners", "corners_yx"):
            place += " as shares of the image" if self.head.normalized else " in pixels"
        text = f"finished boxes: {place}, score and class" if self.is_finished else f"{place}, {self.scores_in_words}"
        return f"{text}, with {self.head.keypoints} keypoints" if self.head.keypoints else text

    @property
    def cell_distance(self) -> float:
        """The median distance, in strides, of the boxes from the cells that predict them; infinite without cells."""
        centres = (self.corners[:, :2] + self.corners[:, 2:]) / 2
        distances = [
            float(np.median(np.abs(centres - places).max(axis=1) / strides[:, 0]))
            for places, strides in _cells(self.head.size, len(centres))
        ]
        return min(distances, default=math.inf)


def _cells(size: Sequence[int], points: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield centres and strides of grids whose cells have this number of points, in the usual orders."""
    for first, last in combinations(range(len(boxes.STRIDES) + 1), 2):
        grids = [boxes.centres_of_strides(size, [stride]) for stride in boxes.STRIDES[first:last]]
        anchors, rest = divmod(points, sum(len(centres) for centres, _ in grids))
        if rest or not 1 <= anchors <= MAX_ANCHORS:
            continue
        for step, anchors_last in product((1, -1), (True, False)):  # the finest grid first, or the coarsest
            tables = [[_per_anchor(each, anchors, anchors_last) for each in grid] for grid in grids[::step]]
            yield np.concatenate([each[0] for each in tables]), np.concatenate([each[1] for each in tables])


def _per_anchor(rows: np.ndarray, anchors: int, anchors_last: bool) -> np.ndarray:
    return np.repeat(rows, anchors, axis=0) if anchors_last else np.tile(rows, (anchors, 1))


def forms(outputs: Sequence[np.ndarray], size: Sequence[int], classes: int, keypoints: int = 0) -> list[Form]:
    """Return the ways to read outputs (1, …) for one image of (height, width), the most likely first.

    With a number of keypoints, only those are returned in which each box has so many.
    """
    if not all(output.ndim > 0 and output.shape[0] == 1 for output in outputs):
        return []
    tables = [(output[0] if output.ndim > 1 else output).astype(np.float32) for output in outputs]
    shapes = [table.shape for table in tables]
    candidates: list[Form] = []
    layouts = KEYPOINT_LAYOUTS if keypoints else LAYOUTS
    for layout, columns in product(layouts, (3, 2) if keypoints else (3,)):
        bins = NANODET_BINS if layout == NANODET else 1
        for points_last, background in product((False, True), (None,) if keypoints else (None, classes)):
            head = BoxHead(
                tuple(size), classes, layout, "corners", points_last=points_last, bins=bins, background=background,
                keypoints=keypoints, keypoint_columns=columns,
            )  # fmt: skip
            try:
                converted_shape(head._asdict(), shapes)
            except BundleError:
                continue
            candidates += _forms_of_layout(split_parts(tables, head), head)
    return candidates


def _forms_of_layout(parts: Parts, head: BoxHead) -> list[Form]:
    """Return the forms of outputs with these parts; none if the parts are not what the layout says."""
    if set(FINISHED) <= set(parts):
        read = _finished_scores(parts, head)
    elif head.background is not None:
        read = _with_background(parts, head)
    else:
        read = _with_score_codes(parts, head)
    if read is None:
        return []
    parts, head, scores = read
    if head.bins > 1:
        return _distributions(parts["boxes"], head, scores)
    normalized = bool(np.abs(parts["boxes"]).max(initial=0) <= MAX_SHARE)
    codes: Sequence[BoxCode] = ("corners_yx",) if "count" in parts else ("corners", "centre")
    candidates = []
    for code in codes:
        form_head = head._replace(boxes=code, normalized=normalized)
        corners = corners_of(parts["boxes"], form_head)
        kinds = parts["index"][:, 0].astype(np.int64).clip(0, head.classes - 1) if "index" in parts else None
        form_head, keypoints = _keypoints(parts, form_head)
        candidates.append(Form(form_head, corners, scores, _valid_share(corners, head.size), kinds, keypoints))
    candidates.sort(key=lambda form: -form.valid_share)
    if "objectness" in parts and (undecoded := _undecoded(parts["boxes"], head, scores)) is not None:
        are_decoded = any(form.is_valid and form.cell_distance < NEAR_STRIDES for form in candidates)
        return candidates if are_decoded else [undecoded]
    return candidates


def _keypoints(parts: Parts, head: BoxHead) -> tuple[BoxHead, np.ndarray | None]:
    """Return the head with what the visibility is, and the keypoints in pixels; None if there are none."""
    if not head.keypoints:
        return head, None
    values = parts["keypoints"].reshape(-1, head.keypoints, head.keypoint_columns)
    places = values[..., :2] * picture_scale(head)[:2]
    seen = values[..., 2:]
    if not _is_probability(seen):
        head, seen = head._replace(visibility="logits"), sigmoid32(seen)
    elif head.keypoint_columns > places.shape[2]:
        head = head._replace(visibility="probabilities")
    return head, np.concatenate([places, seen], axis=2)


def _undecoded(raw: np.ndarray, head: BoxHead, scores: np.ndarray) -> Form | None:
    """Return the form of offsets and logarithms, as YOLOX gives them without its decoding; None without cells."""
    form_head = head._replace(boxes="exponential")
    try:
        with np.errstate(over="ignore"):
            corners = corners_of(raw, form_head)
    except BundleError:
        return None
    form = Form(form_head, corners, scores, _valid_share(corners, head.size))
    return form if form.is_valid and form.cell_distance < NEAR_STRIDES else None


def _distributions(raw: np.ndarray, head: BoxHead, scores: np.ndarray) -> list[Form]:
    """Return the form of distributions of distances, as NanoDet gives them; none without cells."""
    try:
        strides = boxes.grid_strides(head.size, len(raw))
    except BundleError:
        return []
    offset = 0.0 if len(strides) >= NANODET_PLUS_GRIDS else 0.5
    form_head = head._replace(boxes="distances", offset=offset)
    centres, widths = boxes.grid_centres(head.size, len(raw))
    start, sides = centres - np.float32(0.5 - offset) * widths, mean_distances(raw, head.bins) * widths
    corners = np.concatenate([start - sides[:, :2], start + sides[:, 2:]], axis=1)
    return [Form(form_head, corners, scores, _valid_share(corners, head.size))]


def _finished_scores(parts: Parts, head: BoxHead) -> tuple[Parts, BoxHead, np.ndarray] | None:
    """Return the valid rows of finished boxes, their head and their scores; None if they are no scores and indices."""
    count = int(parts["count"][0, 0]) if "count" in parts else len(parts["boxes"])
    parts = {name: values[: max(count, 0)] for name, values in parts.items()}  # the other rows may be any bytes
    if head.background is not None or not _is_index(parts["index"]) or not _is_probability(parts["score"]):
        return None
    if len(head.parts) > 1 and _is_index(parts["score"]):
        return None  # nothing was found, so that the scores cannot be told from the classes
    has_box = parts["score"][:, 0] > 0
    if not has_box.any():
        return None  # rows that are filled up with zeros show nothing
    parts = {name: values[has_box] for name, values in parts.items() if name != "count"} | (
        {"count": parts["count"]} if "count" in parts else {}
    )
    return parts, head._replace(scores="index"), parts["score"]


def _with_background(parts: Parts, head: BoxHead) -> tuple[Parts, BoxHead, np.ndarray] | None:
    """Return the head of scores of which one column is the background, and the probabilities of the classes.

    The background is the first or the last column, whichever is more probable. The result is None if the scores are
    not those of a softmax.
    """
    values = parts["classes"]
    are_shares = _is_probability(values)
    if are_shares and np.abs(values.sum(axis=1) - 1).max(initial=0) > SUM_TOLERANCE:
        return None
    if "objectness" in parts or "level" in parts or (not are_shares and _has_probabilities(values)):
        return None
    shares = values if are_shares else _softmax(values)
    means = shares.mean(axis=0)
    background = 0 if means[0] > means[-1] else head.classes
    head = head._replace(scores="probabilities" if are_shares else "softmax", background=background)
    return parts, head, np.delete(shares, background, axis=1)


def _with_score_codes(parts: Parts, head: BoxHead) -> tuple[Parts, BoxHead, np.ndarray] | None:
    """Return the head with what its scores are, and the probabilities of the classes; None if they are no scores."""
    values = parts["classes"]
    are_logits = not _is_probability(values)
    if (are_logits and _has_probabilities(values)) or ("level" in parts and not _is_level(parts["level"])):
        return None
    head = head._replace(scores="logits" if are_logits else "probabilities")
    scores = sigmoid32(values) if are_logits else values
    if "objectness" not in parts:
        return parts, head, scores
    objectness = parts["objectness"]
    has_logits = not _is_probability(objectness)
    if has_logits != are_logits or _is_index(values):
        return None  # the last column is an angle, or the index of a class
    scores = scores * (sigmoid32(objectness) if has_logits else objectness)
    return parts, head._replace(objectness="logits" if has_logits else "probabilities"), scores


def _is_probability(values: np.ndarray) -> bool:
    return bool((values >= 0).all() and (values <= 1).all())


def _has_probabilities(values: np.ndarray) -> bool:
    """Whether one of the columns may be a probability, so that the columns together are no logits."""
    return any(_is_probability(column) for column in values.T)


def _is_index(values: np.ndarray) -> bool:
    return bool((values == np.rint(values)).all())


def _is_level(values: np.ndarray) -> bool:
    """Whether values are the number of the grid of each point, in ascending order."""
    return _is_index(values) and bool((np.diff(values[:, 0]) >= 0).all()) and values[0, 0] == 0 and values[-1, 0] > 0


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _valid_share(corners: np.ndarray, size: Sequence[int]) -> float:
    """Return the share of boxes whose sides are in order and near the image."""
    height, width = size
    limits = np.array([width, height, width, height], dtype=np.float32)
    near = ((corners >= -SLACK * limits) & (corners <= (1 + SLACK) * limits)).all(axis=1)
    return float((near & (corners[:, 2:] >= corners[:, :2]).all(axis=1)).mean()) if len(corners) else 0.0
