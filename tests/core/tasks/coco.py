"""COCO's own evaluation, pycocotools, with which the tests of tasks with boxes compare average precisions."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np


def average_precisions(
    kind: str,
    images: list[dict[str, Any]],
    classes: int,
    annotations: list[dict[str, Any]],
    detections: list[dict[str, Any]],
    deviations: np.ndarray | None = None,
) -> tuple[float, float]:
    """Return the average precision over all overlaps, and at one half, for the kind `bbox`, `keypoints` or `segm`.

    Classes are counted from 1. `deviations` are those of the keypoints.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = COCO()
    truth.dataset = {
        "images": images,
        "categories": [{"id": number} for number in range(1, classes + 1)],
        "annotations": [{"id": place, **each} for place, each in enumerate(annotations, 1)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), kind)
        if deviations is not None:
            evaluation.params.kpt_oks_sigmas = deviations
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])
