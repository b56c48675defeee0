"""Recognise what the outputs of a published detector hold, from their shapes and from the values for one image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.runner.box_heads import BoxCode, BoxHead, Part, converted_shape, corners_of, sigmoid32, split_parts
from edgekit.runner.errors import BundleError

MIN_VALID = 0.9
"""Share of the boxes that must be valid in a form."""
MAX_SHARE = 2.0
"""Largest coordinate if coordinates are shares of the image. A box may reach beyond the image."""
SLACK = 0.5
"""How far the sides of a valid box may lie outside, as a share of the image."""
LAYOUTS: tuple[tuple[tuple[Part, ...], ...], ...] = (
    (("boxes", "classes"),),
    (("boxes", "objectness", "classes"),),
    (("boxes",), ("classes",)),
    (("classes",), ("boxes",)),
    (("boxes", "score", "index"),),
    (("boxes",), ("index",), ("score",), ("count",)),
    (("boxes",), ("score",), ("index",)),
    (("boxes",), ("index",), ("score",)),
)
"""The parts that the outputs of detectors hold, in their usual orders."""
TITLES: dict[BoxCode, str] = {
    "centre": "centres and sizes",
    "corners": "corners",
    "corners_yx": "corners with the top first",
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
    """

    head: BoxHead
    corners: np.ndarray
    scores: np.ndarray
    valid_share: float

    @property
    def is_valid(self) -> bool:
        """Whether the boxes may be boxes at all."""
        return self.valid_share >= MIN_VALID

    @property
    def is_finished(self) -> bool:
        """Whether the boxes were already selected, each with its class."""
        return self.head.scores == "index"

    @property
    def description(self) -> str:
        """What the outputs hold, in words."""
        place = f"{TITLES[self.head.boxes]} {'as shares of the image' if self.head.normalized else 'in pixels'}"
        if self.is_finished:
            return f"finished boxes: {place}, score and class"
        kind = "a softmax with a background" if self.head.scores == "softmax" else self.head.scores
        has_objectness = any("objectness" in names for names in self.head.parts)
        return f"{place}, {'an objectness, ' if has_objectness else ''}and {kind}"


def forms(outputs: Sequence[np.ndarray], size: Sequence[int], classes: int) -> Iterator[Form]:
    """Yield the ways to read outputs (1, …) for one image of (height, width), the most likely first."""
    if not all(output.ndim > 1 and output.shape[0] == 1 for output in outputs):
        return
    tables = [output[0].astype(np.float32) for output in outputs]
    shapes = [table.shape for table in tables]
    for layout in LAYOUTS:
        for points_last in (False, True):
            for background in (None, classes):
                head = BoxHead(tuple(size), classes, layout, "corners", points_last=points_last, background=background)
                try:
                    converted_shape(head._asdict(), shapes)
                except BundleError:
                    continue
                yield from _forms_of_layout(split_parts(tables, head), head)


def _forms_of_layout(parts: dict[str, np.ndarray], head: BoxHead) -> Iterator[Form]:
    """Yield the forms of outputs with these parts; none if the parts are not what the layout says."""
    if "index" in parts:
        if head.background is not None or not _is_index(parts["index"]) or not _is_probability(parts["score"]):
            return
        head, scores = head._replace(scores="index"), parts["score"]
    elif head.background is not None:
        if "objectness" in parts:
            return
        head, scores = head._replace(scores="softmax"), _softmax(parts["classes"])[:, : head.classes]
    else:
        head, scores = _with_score_codes(parts, head)
        if "objectness" in parts and head.scores != head.objectness:
            return  # the last column is no probability, such as the angle of a rotated box
    normalized = bool(np.abs(parts["boxes"]).max(initial=0) <= MAX_SHARE)
    codes: Sequence[BoxCode] = ("corners_yx",) if "count" in parts else ("corners", "centre")
    candidates = []
    for code in codes:
        form_head = head._replace(boxes=code, normalized=normalized)
        corners = corners_of(parts["boxes"], form_head)
        candidates.append(Form(form_head, corners, scores, _valid_share(corners, head.size)))
    yield from sorted(candidates, key=lambda form: -form.valid_share)


def _with_score_codes(parts: dict[str, np.ndarray], head: BoxHead) -> tuple[BoxHead, np.ndarray]:
    """Return the head with what its scores are, and the probabilities of the classes."""
    are_logits = not _is_probability(parts["classes"])
    head = head._replace(scores="logits" if are_logits else "probabilities")
    scores = sigmoid32(parts["classes"]) if are_logits else parts["classes"]
    if "objectness" in parts:
        are_logits = not _is_probability(parts["objectness"])
        head = head._replace(objectness="logits" if are_logits else "probabilities")
        scores = scores * (sigmoid32(parts["objectness"]) if are_logits else parts["objectness"])
    return head, scores


def _is_probability(values: np.ndarray) -> bool:
    return bool((values >= 0).all() and (values <= 1).all())


def _is_index(values: np.ndarray) -> bool:
    return bool((values == np.rint(values)).all())


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _valid_share(corners: np.ndarray, size: Sequence[int]) -> float:
    """Return the share of boxes whose sides are in order and near the image."""
    height, width = size
    limits = np.array([width, height, width, height], dtype=np.float32)
    near = ((corners >= -SLACK * limits) & (corners <= (1 + SLACK) * limits)).all(axis=1)
    return float((near & (corners[:, 2:] >= corners[:, :2]).all(axis=1)).mean()) if len(corners) else 0.0
