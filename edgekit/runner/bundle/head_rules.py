"""Rules for the `head` of a manifest: how the outputs of a published detector are read (`runner/box_heads.py`)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, get_args

from edgekit.runner import box_heads
from edgekit.runner.errors import BundleError, InputError
from edgekit.runner.rules import FLAG, SHAPE, Rule, is_count, is_integer, is_list, is_number, one_of, require

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

MAX_ANCHORS = 64
"""Largest number of anchors or prior boxes in a cell, of grids, and of bins."""
MAX_INDEX = 1000


def _is_box_size(value: Any) -> bool:
    return is_list(value) and len(value) == 2 and all(is_number(side) and side > 0 for side in value)


def _are_sizes(value: Any) -> bool:
    return is_list(value) and len(value) <= MAX_ANCHORS and all(map(_is_box_size, value))


def _is_prior_grid(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"cells", "step", "sizes"}
        and is_list(value["cells"])
        and len(value["cells"]) == 2
        and all(map(is_count, value["cells"]))
        and _is_box_size(value["step"])
        and _are_sizes(value["sizes"])
    )


def _are_parts(value: Any) -> bool:
    names = [name for output in value if is_list(output) for name in output] if is_list(value) else []
    return (
        all(map(is_list, value if is_list(value) else [None]))
        and len(set(map(str, names))) == len(names)
        and set(map(str, names)) <= set(get_args(box_heads.Part))
    )


HEAD = {
    "size": SHAPE,
    "classes": Rule(is_count, "must be a whole number above 0"),
    "parts": Rule(_are_parts, f"must list, for each output, some of {', '.join(get_args(box_heads.Part))}"),
    "boxes": one_of(get_args(box_heads.BoxCode)),
    "scores": one_of(get_args(box_heads.ScoreCode)),
    "objectness": one_of(("logits", "probabilities")),
    "points_last": FLAG,
    "normalized": FLAG,
    "bins": Rule(lambda value: is_count(value) and value <= MAX_ANCHORS, f"must be 1 to {MAX_ANCHORS}"),
    "offset": Rule(lambda value: is_number(value) and 0 <= value <= 1, "must be 0 to 1"),
    "background": Rule(lambda value: value is None or (is_integer(value) and value >= 0), "must be an index"),
    "first_index": Rule(lambda value: is_integer(value) and 0 <= value <= MAX_INDEX, f"must be 0 to {MAX_INDEX}"),
    "anchors": Rule(
        lambda value: isinstance(value, (list, tuple)) and len(value) <= MAX_ANCHORS and all(map(_are_sizes, value)),
        "must list the [width, height] of anchors for each grid",
    ),
    "priors": Rule(
        lambda value: (
            isinstance(value, (list, tuple)) and len(value) <= MAX_ANCHORS and all(map(_is_prior_grid, value))
        ),
        "must list grids with cells, step and sizes",
    ),
    "variances": Rule(_is_box_size, "must be two numbers above 0"),
    "keypoints": Rule(lambda value: is_integer(value) and value >= 0, "must be a whole number from 0"),
    "keypoint_columns": Rule(lambda value: value in (2, 3) and is_integer(value), "must be 2 or 3"),
    "visibility": one_of(("logits", "probabilities")),
    "keypoint_scale": Rule(
        lambda value: is_list(value) and len(value) == 2 and all(map(is_number, value)), "must be two numbers"
    ),
    "coefficients": Rule(lambda value: is_integer(value) and value >= 0, "must be a whole number from 0"),
}
REQUIRED = ("size", "classes", "parts", "boxes", "scores")
NEEDED_PARTS = {"index": {"boxes", "score", "index"}}
"""Parts that a `ScoreCode` needs; codes not listed need boxes and classes."""


def check_head(head: Any, manifest: Manifest) -> None:
    """Raise InputError unless a head is well formed and fits the outputs, the sample and the labels of a manifest."""
    require(isinstance(head, dict), "head", head, "must be an object")
    unknown, missing = sorted(set(head) - set(HEAD)), sorted(set(REQUIRED) - set(head))
    require(not unknown and not missing, "head", sorted(head), f"unknown keys {unknown}, missing keys {missing}")
    for key, value in head.items():
        require(HEAD[key].holds(value), f"head.{key}", value, HEAD[key].fix)
    names = {name for output in head["parts"] for name in output}
    needed = NEEDED_PARTS.get(head["scores"], {"boxes", "classes"})
    require(needed <= names, "head.parts", sorted(names), f"its scores need {', '.join(sorted(needed))}")
    count = len(manifest.keypoints["names"]) if manifest.keypoints else 0
    require(head.get("keypoints", 0) == count, "head.keypoints", head.get("keypoints", 0), f"{count} are named")
    has_part = ("keypoints" in names) == (count > 0)
    require(has_part, "head.parts", sorted(names), f"keypoints belong to the task keypoints; it is {manifest.task}")
    count, has_masks = head.get("coefficients", 0), manifest.task == "instance_masks"
    fix = f"the task instance_masks needs them, and no other has them; it is {manifest.task}"
    require((count > 0) == has_masks, "head.coefficients", count, fix)
    mask_parts = {"coefficients", "prototypes"} if has_masks else set()
    fits = names & {"coefficients", "prototypes"} == mask_parts
    fits = fits and (not has_masks or ["prototypes"] in map(list, head["parts"]))
    fix = "only instance masks have coefficients, and prototypes as an output of their own"
    require(fits, "head.parts", sorted(names), fix)
    background = head.get("background")
    has_background = background is None or background <= head["classes"]
    require(has_background, "head.background", background, f"at most {head['classes']} for {head['classes']} classes")
    has_bins = head.get("bins", 1) == 1 or head["boxes"] == "distances"
    require(has_bins, "head.bins", head.get("bins"), f"boxes of the code {head['boxes']} have 1")
    size, labels = list(manifest.raw.shape[:2]), len(manifest.labels)
    require(list(head["size"]) == size, "head.size", head["size"], f"the sample has {size}")
    require(head["classes"] == labels, "head.classes", head["classes"], f"there are {labels} labels")
    try:
        points, _ = box_heads.converted_shape(head, [each.answer for each in manifest.outputs])
        if head["boxes"] == "priors" or (head["boxes"] == "centre" and head.get("priors")):
            count = sum(prod(grid["cells"]) * len(grid["sizes"]) for grid in head.get("priors", ()))
            require(count == points, "head.priors", count, f"the outputs have {points} points")
        elif head["boxes"] in ("anchors", "exponential", "distances"):
            box_heads.check_points(head, points)
    except BundleError as error:
        raise InputError(f"head: {error}") from None
