"""Compare a detector that was cut before its decoding with the whole file, on pictures.

The values for one image, which may be random, prove where to cut. A file may still decode other pictures differently,
so a cut is used only if it gives the same boxes for pictures of the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner import boxes, instance_masks, keypoints
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import sigmoid32

MAX_PIXELS, MAX_SCORE = 0.5, 1e-3
"""Differences up to which two boxes are the same."""
OPTIONS = boxes.BoxOptions(least_probability=0.01, overlap=1.0, most=boxes.MAX_CANDIDATES)
"""The boxes that are decoded; an overlap of 1 drops none of them."""
MAX_COMPARED = 50
"""The boxes of a picture that are compared, the most probable ones."""
CELLS = 16
"""The cells in which the masks of a picture are compared, spread evenly over it."""
KeptBoxes = Literal["all", "best", "some"]
File = tuple[bytes, "dict[str, Any] | None"]
"""An ONNX file for a batch of one image, channels first, and the head by which its outputs are read."""


def agrees(whole: File, cut: File, needed: TaskOutputs, images: Iterable[np.ndarray], keeps: KeptBoxes) -> bool:
    """Whether a cut file gives the boxes of the whole one for images (height, width, channels).

    `keeps` says which boxes of the cut file the whole one has: all, the most probable ones, or, if it suppresses boxes,
    some.

    Raises
    ------
    ModelError
        One of the files does not run on an image.
    """
    try:
        sessions = [runner.session(content, None) for content, _ in (whole, cut)]
        needs = [replace(needed, head=head) for _, head in (whole, cut)]
        for image in images:
            x = np.ascontiguousarray(image.transpose(2, 0, 1)[None], dtype=np.float32)
            found, of_cut = (
                _decoded(need.join(session.run(None, {session.get_inputs()[0].name: x}))[0], need)
                for session, need in zip(sessions, needs, strict=True)
            )
            limits = _limits(needed.task, found.shape[1])
            if not _has(of_cut, found, limits) or (
                keeps != "some" and not _has(found, of_cut, limits, best_only=keeps == "best")
            ):
                return False
    except runner.runtime_errors() as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"does not run when it is cut before its decoding: {reason}") from None
    return True


def _decoded(outputs: np.ndarray, needed: TaskOutputs) -> np.ndarray:
    """Return the boxes in the outputs for an image (n, values), the most probable first.

    The values are the class, the probability, the sides in pixels and, for each keypoint, x, y and its visibility, or
    the mask's probability in each of some cells.
    """
    if needed.task == "instance_masks":
        found, coefficients, prototypes = instance_masks.Decoder(needed.size, len(outputs), OPTIONS)(outputs)
        cells = prototypes.reshape(len(prototypes), -1)
        points = sigmoid32(coefficients @ cells[:, :: max(1, cells.shape[1] // CELLS)])
    elif needed.task == "keypoints":
        found, points = keypoints.Decoder(needed.size, len(outputs), OPTIONS)(outputs)
        points = np.concatenate([points[..., :2], sigmoid32(points[..., 2:])], axis=2).reshape(len(points), -1)
    else:
        found = boxes.Decoder(needed.size, len(outputs), OPTIONS)(outputs)
        points = np.empty((len(found.sides), 0), dtype=np.float32)
    table = np.concatenate([found.classes[:, None], sigmoid32(found.logits)[:, None], found.sides, points], axis=1)
    if needed.task in ("keypoints", "instance_masks"):  # the device takes the most probable class of a point alone
        _, first = np.unique(found.sides, axis=0, return_index=True)
        table = table[np.sort(first)]
    return table


def _limits(task: str | None, count: int) -> np.ndarray:
    """Return the largest difference of each of the values of `_decoded`, (count,)."""
    limits = np.full(count, MAX_PIXELS)
    limits[0], limits[1] = 0.0, MAX_SCORE
    if task == "instance_masks":
        limits[6:] = MAX_SCORE
    else:
        limits[8::3] = MAX_SCORE
    return limits


def _has(table: np.ndarray, others: np.ndarray, limits: np.ndarray, *, best_only: bool = False) -> bool:
    """Whether the likeliest of other boxes are in a table, except those that are less likely than all that it has.

    Boxes that are narrower than a pixel are left out, because rounding decides whether they have an area.
    """
    is_limited = len(table) > 0 and (best_only or len(table) == OPTIONS.most)
    last = table[-1, 1] + MAX_SCORE if is_limited else 0.0
    wide = (others[:, 4:6] - others[:, 2:4] >= 1).all(axis=1)
    compared = others[wide & (others[:, 1] > max(last, OPTIONS.least_probability + MAX_SCORE))][:MAX_COMPARED]
    return all((np.abs(table - row) <= limits).all(axis=1).any() for row in compared)
