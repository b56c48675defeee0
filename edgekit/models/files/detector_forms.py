"""Recognise what the outputs of a published detector hold, from their shapes and from the values for one image.

Each way to read the outputs is a form. "Finished" boxes are those that the file has already selected, each with its
class and the score of this class; in other forms, each box has a score for every class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product

import numpy as np

from edgekit.core import detector_names
from edgekit.core.detector_names import Structure
from edgekit.runner import boxes, instance_masks
from edgekit.runner.box_heads import (
    BoxCode,
    BoxHead,
    Part,
    converted_shape,
    corners_of,
    mean_distances,
    picture_scale,
    prior_points,
    sigmoid32,
    split_parts,
)
from edgekit.runner.errors import BundleError

MIN_VALID = 0.9
"""The share of its boxes that must be valid for a form to be accepted."""
MAX_SHARE = 2.0
"""Coordinates that are shares of the image are at most this large: more than 1, because boxes may reach beyond it."""
SLACK = 0.5
"""How far the sides of a valid box may lie outside the image, as a share of the image's width or height."""
SUM_TOLERANCE = 1e-3
"""How far the sum of the probabilities of a softmax may be from 1."""
NEAR_STRIDES = 3.0
"""Boxes are taken for those of a grid's cells if their median distance from the cells is below this, in strides."""
MAX_ANCHORS = 9
"""Largest number of anchors in a cell."""
NANODET_BINS = 8
"""NanoDet returns a distribution for each side of a box, in this many numbers."""
NANODET_PLUS_GRIDS = 4
"""NanoDet-Plus has this many grids, one more than NanoDet. It measures distances from the top left corners of cells."""
Parts = dict[str, np.ndarray]
NANODET: tuple[tuple[Part, ...], ...] = (("classes", "boxes"),)
FINISHED: tuple[Part, ...] = ("index", "score")
SEPARATE: tuple[tuple[Part, ...], ...] = (("boxes",), ("index",), ("score",), ("count",))
"""The parts of finished boxes if each part has its own output. `LAYOUTS` lists these outputs in every order."""
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
BLAZE: tuple[tuple[Part, ...], ...] = (("boxes", "keypoints"), ("classes",))
BLAZE_CELLS = (((8, 2), (16, 6)), ((16, 2), (32, 6)), ((4, 1),))
"""The strides of the grids of BlazeFace and its versions, each with its number of points in a cell."""
KEYPOINT_LAYOUTS: tuple[tuple[tuple[Part, ...], ...], ...] = (
    BLAZE,
    (("boxes", "classes", "keypoints"),),
    (("boxes", "score", "index", "keypoints"),),
    (("boxes",), ("classes",), ("keypoints",)),
)
"""The same for those that predict keypoints, too."""
MASK_LAYOUTS: tuple[tuple[tuple[Part, ...], ...], ...] = (
    *permutations((("boxes", "classes", "coefficients"), ("prototypes",))),
    *permutations((("boxes", "score", "index", "coefficients"), ("prototypes",))),
    (("boxes",), ("classes",), ("coefficients",), ("prototypes",)),
)
"""The same for those that predict masks of instances, too."""
TITLES: dict[BoxCode, str] = {
    "centre": "centres and sizes",
    "corners": "corners",
    "corners_yx": "corners with the top first",
    "exponential": "offsets from cells and logarithms of sizes",
    "distances": "distributions of distances",
}
COORDINATES = ("centre", "corners", "corners_yx")
"""Codes whose numbers are places in the image, in pixels or as shares of it."""
PLACES: dict[BoxCode, str] = {
    "exponential": detector_names.OFFSETS,
    "distances": detector_names.DISTANCES,
    "centre": "centres",
    "corners": "corners",
    "corners_yx": "corners",
}
"""What the boxes are in a name."""


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
        Probabilities of the classes (rows, classes), multiplied by the objectness if there is one. A finished box has
        only the probability of its own class (rows, 1).
    valid_share
        Share of the boxes whose sides are in order and near the image.
    kinds
        The classes of finished boxes, (rows,).
    rows
        Number of finished boxes in the outputs, also of those that hold nothing and are left out of the other fields.
    keypoints
        x and y in pixels and, if there is one, the visibility as a probability, (rows, keypoints, 2 or 3).
    coefficients
        Those of the prototypes of masks, (rows, prototypes).
    prototypes
        Shape of the output with the prototypes, without the batch; empty if there is none.
    """

    head: BoxHead
    corners: np.ndarray
    scores: np.ndarray
    valid_share: float
    kinds: np.ndarray | None = None
    rows: int = 0
    keypoints: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    prototypes: tuple[int, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether so many of the boxes are valid that these numbers may be boxes at all."""
        return self.valid_share >= MIN_VALID

    @property
    def is_finished(self) -> bool:
        """Whether the boxes were already selected, each with its class."""
        return self.head.scores == "index"

    @property
    def structure(self) -> Structure:
        """What the outputs hold, as in a name."""
        if self.is_finished:
            return "finished"
        if self.head.background is not None:
            return "background"
        if self.head.bins > 1:
            return "distributions"
        return "objectness" if any("objectness" in names for names in self.head.parts) else "plain"

    @property
    def place(self) -> str:
        """What the numbers of a box are, as in a name."""
        if self.head.priors:
            return detector_names.PRIORS
        if self.head.boxes not in COORDINATES:
            return PLACES[self.head.boxes]
        return f"{PLACES[self.head.boxes]} {'as shares' if self.head.normalized else 'in pixels'}"

    @property
    def order(self) -> str:
        """Which output holds the boxes, if there are two of the same shape; otherwise empty."""
        columns = self.head.classes + (self.head.background is not None)
        if self.head.coefficients or len(self.head.parts) != 2 or columns != boxes.BOX_SIDES:
            return ""
        return detector_names.ORDERS[tuple(self.head.parts[0]) != ("boxes",)]

    @property
    def name(self) -> str:
        """The name for `--head`."""
        return detector_names.name_of(self.structure, self.place, self.order)

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
        if self.head.boxes in COORDINATES:
            place += " as shares of the image" if self.head.normalized else " in pixels"
            place += " from prior boxes" if self.head.priors else ""
        text = f"finished boxes: {place}, score and class" if self.is_finished else f"{place}, {self.scores_in_words}"
        if self.head.coefficients:
            return f"{text}, with {self.head.coefficients} coefficients of masks"
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
    """Yield centres and strides for each set of grids with this number of points, in each of the usual orders."""
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


def forms(
    outputs: Sequence[np.ndarray], size: Sequence[int], classes: int, keypoints: int = 0, *, with_masks: bool = False
) -> list[Form]:
    """Return the ways to read outputs (1, …) for one image of (height, width), the most likely first.

    With a number of keypoints, only those are returned in which each box has so many, and with masks, only those in
    which each box has a coefficient for every prototype.
    """
    if not all(output.ndim > 0 and output.shape[0] == 1 for output in outputs):
        return []
    tables = [(output[0] if output.ndim > 1 else output).astype(np.float32) for output in outputs]
    shapes = [table.shape for table in tables]
    candidates: list[Form] = []
    coefficients = prototype_count(shapes, size) if with_masks else 0
    if with_masks and not coefficients:
        return []
    layouts = MASK_LAYOUTS if with_masks else KEYPOINT_LAYOUTS if keypoints else LAYOUTS
    backgrounds: Sequence[int | None] = (None,) if keypoints or with_masks else (None, classes)
    for layout, columns in product(layouts, (3, 2) if keypoints else (3,)):
        bins = NANODET_BINS if layout == NANODET else 1
        for points_last, background in product((False, True), backgrounds):
            head = BoxHead(
                tuple(size), classes, layout, "corners", points_last=points_last, bins=bins, background=background,
                keypoints=keypoints, keypoint_columns=columns, coefficients=coefficients,
            )  # fmt: skip
            try:
                converted_shape(head._asdict(), shapes)
            except BundleError:
                continue
            found = _forms_of_layout(split_parts(tables, head), head)
            shape = tuple(shapes[layout.index(("prototypes",))]) if with_masks else ()
            candidates += [replace(form, prototypes=shape) for form in found]
    return candidates


def prototype_count(shapes: Sequence[Sequence[int]], size: Sequence[int]) -> int:
    """Return the number of prototypes of masks in outputs of these shapes without a batch; 0 if there are none."""
    grid = boxes.grid_shape(size, instance_masks.STRIDE)
    first = (shape[0] for shape in shapes if len(shape) == 3 and tuple(shape[1:]) == grid)
    last = (shape[2] for shape in shapes if len(shape) == 3 and tuple(shape[:2]) == grid)
    return next(first, next(last, 0))


def _forms_of_layout(parts: Parts, head: BoxHead) -> list[Form]:
    """Return the forms of outputs with these parts; none if the parts are not what the layout says."""
    parts = {name: values for name, values in parts.items() if name != "prototypes"}
    if set(FINISHED) <= set(parts):
        read = _finished_scores(parts, head)
    elif head.background is not None:
        read = _with_background(parts, head)
    else:
        read = _with_score_codes(parts, head)
    if read is None:
        return []
    rows = len(parts["boxes"])
    parts, head, scores = read
    if head.bins > 1:
        return _distributions(parts["boxes"], head, scores)
    if tuple(head.parts) == BLAZE:
        return _from_priors(parts, head, scores)
    codes: Sequence[BoxCode] = ("corners_yx",) if "count" in parts else ("corners", "centre")
    candidates = []
    for normalized, code in product(_scales(parts["boxes"]), codes):
        form_head = head._replace(boxes=code, normalized=normalized)
        corners = corners_of(parts["boxes"], form_head)
        kinds = parts["index"][:, 0].astype(np.int64) - head.first_index if "index" in parts else None
        form_head, keypoints = _keypoints(parts, form_head)
        share, coefficients = _valid_share(corners, head.size), parts.get("coefficients")
        candidates.append(Form(form_head, corners, scores, share, kinds, rows, keypoints, coefficients))
    candidates.sort(key=lambda form: (not form.is_valid, not form.head.normalized, -form.valid_share))
    if "objectness" in parts and (undecoded := _undecoded(parts["boxes"], head, scores)) is not None:
        are_decoded = any(form.is_valid and form.cell_distance < NEAR_STRIDES for form in candidates)
        return candidates if are_decoded else [undecoded]
    return candidates


def _scales(coordinates: np.ndarray) -> Sequence[bool]:
    """Return whether coordinates may be shares of the image, and whether they may be pixels, the likelier first.

    A network that gives shares may give some that are far outside the image.
    """
    are_small = np.abs(coordinates) <= MAX_SHARE
    return (True,) if are_small.all() else (True, False) if are_small.mean() >= MIN_VALID else (False,)


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
    """Return the form of offsets and logarithms, which YOLOX returns if exported without its decoding.

    The result is None if the rows are not those of a grid's cells.
    """
    form_head = head._replace(boxes="exponential")
    try:
        with np.errstate(over="ignore"):
            corners = corners_of(raw, form_head)
    except BundleError:
        return None
    form = Form(form_head, corners, scores, _valid_share(corners, head.size))
    return form if form.is_valid and form.cell_distance < NEAR_STRIDES else None


def _distributions(raw: np.ndarray, head: BoxHead, scores: np.ndarray) -> list[Form]:
    """Return the form of distributions of distances, which NanoDet returns; empty if no grids have this many points."""
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


def _from_priors(parts: Parts, head: BoxHead, scores: np.ndarray) -> list[Form]:
    """Return the form of BlazeFace; empty if its grids do not have this many points.

    The centre of a box and its keypoints are measured in pixels from the centre of a cell.
    """
    height, width = head.size
    for grids in BLAZE_CELLS:
        cells = [(height // stride, width // stride) for stride, _ in grids]
        counts = [count for _, count in grids]
        if sum(rows * columns * count for (rows, columns), count in zip(cells, counts, strict=True)) != len(scores):
            continue
        priors = tuple(
            {"cells": [rows, columns], "step": [height / rows, width / columns], "sizes": [[1.0, 1.0]] * count}
            for (rows, columns), count in zip(cells, counts, strict=True)
        )
        head, keypoints = _keypoints(parts, head._replace(boxes="centre", priors=priors))
        assert keypoints is not None
        keypoints[..., :2] += prior_points(head, len(scores))[0][:, None]
        corners = corners_of(parts["boxes"], head)
        share = _valid_share(corners, head.size)
        return [Form(head, corners, scores, share, rows=len(scores), keypoints=keypoints)]
    return []


def _finished_scores(parts: Parts, head: BoxHead) -> tuple[Parts, BoxHead, np.ndarray] | None:
    """Return the valid rows of finished boxes, their head and their scores.

    The result is None if the values cannot be scores and indices of classes.
    """
    count = int(parts["count"][0, 0]) if "count" in parts else len(parts["boxes"])
    parts = {name: values[: max(count, 0)] for name, values in parts.items()}  # the other rows may be any bytes
    if head.background is not None or not _is_index(parts["index"]) or not _is_probability(parts["score"]):
        return None
    if len(head.parts) > 1 and _is_index(parts["score"]):
        return None  # no box was found, so the scores are all zero and look like the indices of classes
    has_box = parts["score"][:, 0] > 0
    if not has_box.any():
        return None  # all rows are padding, which shows nothing about the form
    parts = {name: values[has_box] for name, values in parts.items() if name != "count"} | (
        {"count": parts["count"]} if "count" in parts else {}
    )
    lowest, highest = int(parts["index"].min()), int(parts["index"].max())
    first_index = int(lowest > 0 and highest == head.classes)
    if lowest < 0 or highest - first_index >= head.classes:
        return None  # classes that the data do not have
    return parts, head._replace(scores="index", first_index=first_index), parts["score"]


def _with_background(parts: Parts, head: BoxHead) -> tuple[Parts, BoxHead, np.ndarray] | None:
    """Return the parts, the head if one column of the scores is the background, and the probabilities of the classes.

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
    """Return the parts, the head with the kind of its scores, and the probabilities of the classes.

    The scores are logits or probabilities. The result is None if the values cannot be scores.
    """
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
    """Whether the values of a column may all be probabilities. If so, the columns together cannot be logits."""
    return any(_is_probability(column) for column in values.T)


def _is_index(values: np.ndarray) -> bool:
    return bool((np.isfinite(values) & (values == np.rint(values))).all())


def _is_level(values: np.ndarray) -> bool:
    """Whether the values are grid numbers, one for each point, ascending from 0."""
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
