"""Convert answers of a bundle into the `result` and `timing` that Edge Impulse's clients read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgekit.runner.bundle.manifest import Manifest


def to_result(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    """Return the `result` for an answer.

    `threshold` is the probability from which boxes are listed, or the score above which parts of a picture are.
    """
    return RESULTS[manifest.task](prediction, manifest, threshold)


def to_timing(timing_ms: dict[str, float]) -> dict[str, int]:
    """Return the times of an answer in whole milliseconds, because the Rust client reads whole numbers."""
    return {
        "dsp": round(timing_ms["preprocess"]),
        "classification": round(timing_ms["execute"]),
        "postprocessing": round(timing_ms["postprocess"]),
        "anomaly": 0,
        "json": 0,
        "stdin": 0,
    }


def _classification(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    probabilities = dict(prediction.top)
    return {"classification": {label: probabilities[label] for label in manifest.labels}}


def _multi_label(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    return {"classification": prediction.probabilities}


def _regression(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    return {"classification": prediction.values}


def _detection(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    """Return the boxes in whole pixels of the sample."""
    boxes = (each for each in prediction.boxes if each.probability >= threshold)
    return {"bounding_boxes": [_cell(each.label, each.probability, *each.box) for each in boxes]}


def _anomaly(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    """Return the score, and of a map the parts above the threshold."""
    if prediction.map is None:
        return {"classification": {}, "anomaly": prediction.score}
    rows, columns = prediction.map.shape
    down, across = manifest.raw.shape[0] / rows, manifest.raw.shape[1] / columns
    return {
        "visual_anomaly_grid": [
            _cell("anomaly", float(prediction.map[y, x]), x * across, y * down, (x + 1) * across, (y + 1) * down)
            for y, x in np.argwhere(prediction.map > threshold).tolist()
        ],
        "visual_anomaly_max": prediction.score,
        "visual_anomaly_mean": float(prediction.map.mean()),
        "anomaly": prediction.score,
    }


def _embedding(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    return {"freeform": [prediction.embedding]}


def _raw(prediction: Any, manifest: Manifest, threshold: float) -> dict[str, Any]:
    outputs = prediction.outputs.values() or [prediction.output]
    return {"freeform": [each.ravel().tolist() for each in outputs]}


RESULTS: dict[str, Callable[[Any, Manifest, float], dict[str, Any]]] = {
    "classification": _classification,
    "multi_label": _multi_label,
    "regression": _regression,
    "detection": _detection,
    "anomaly": _anomaly,
    "embedding": _embedding,
    "raw": _raw,
}


def _cell(label: str, value: float, left: float, top: float, right: float, bottom: float) -> dict[str, Any]:
    x, y = max(0, round(left)), max(0, round(top))
    return {
        "label": label,
        "value": value,
        "x": x,
        "y": y,
        "width": max(0, round(right) - x),
        "height": max(0, round(bottom) - y),
    }
