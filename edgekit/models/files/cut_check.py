"""Compare a detector that was cut before its decoding with the whole file, on pictures.

The values for one image, which may be random, prove where to cut. A file may still decode other pictures differently,
so a cut is used only if it gives the same boxes for pictures of the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner import boxes, keypoints
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.box_heads import sigmoid32

MAX_PIXELS, MAX_SCORE = 0.5, 1e-3
"""Differences up to which two boxes are the same."""
OPTIONS = boxes.BoxOptions(least_probability=0.01, overlap=1.0, most=boxes.MAX_CANDIDATES)
"""The boxes that are decoded; an overlap of 1 drops none of them."""
MAX_COMPARED = 50
"""The boxes of a picture that are compared, the most probable ones."""
File = tuple[bytes, "dict[str, Any] | None"]
"""An ONNX file for a batch of one image, channels first, and the head by which its outputs are read."""


def agrees(whole: File, cut: File, needed: TaskOutputs, images: Iterable[np.ndarray], *, keeps_all: bool) -> bool:
    """Whether a cut file gives the boxes of the whole one for images (height, width, channels).

    `keeps_all` says that the whole file has every box of the cut one, because it suppresses none.

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
            if not _has(of_cut, found) or (keeps_all and not _has(found, of_cut)):
                return False
    except runner.runtime_errors() as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"does not run when it is cut before its decoding: {reason}") from None
    return True


def _decoded(outputs: np.ndarray, needed: TaskOutputs) -> np.ndarray:
    """Return the boxes in the outputs for an image (n, values), the most probable first.

    The values are the class, the probability, the sides in pixels and, for each keypoint, x, y and its visibility.
    """
    if needed.task == "keypoints":
        found, points = keypoints.Decoder(needed.size, len(outputs), OPTIONS)(outputs)
        points = np.concatenate([points[..., :2], sigmoid32(points[..., 2:])], axis=2).reshape(len(points), -1)
    else:
        found = boxes.Decoder(needed.size, len(outputs), OPTIONS)(outputs)
        points = np.empty((len(found.sides), 0), dtype=np.float32)
    return np.concatenate([found.classes[:, None], sigmoid32(found.logits)[:, None], found.sides, points], axis=1)


def _has(table: np.ndarray, others: np.ndarray) -> bool:
    """Whether the likeliest of other boxes are in a table, except those that are less likely than all that it has.

    Boxes that are narrower than a pixel are left out, because rounding decides whether they have an area.
    """
    last = table[-1, 1] + MAX_SCORE if len(table) == OPTIONS.most else 0.0
    wide = (others[:, 4:6] - others[:, 2:4] >= 1).all(axis=1)
    limits = np.full(others.shape[1], MAX_PIXELS)
    limits[0], limits[1], limits[8::3] = 0.0, MAX_SCORE, MAX_SCORE
    compared = others[wide & (others[:, 1] > max(last, OPTIONS.least_probability + MAX_SCORE))][:MAX_COMPARED]
    return all((np.abs(table - row) <= limits).all(axis=1).any() for row in compared)
