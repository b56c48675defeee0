"""A bundle in the terms of Edge Impulse's answer to `hello`.

All clients get every field, because the Rust client refuses an answer in which one is missing, and whole numbers where
the Go and Rust clients read whole numbers.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.runner import input_path
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.errors import InputError
from edgekit.runner.postprocess import anomaly

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec

UNKNOWN, MICROPHONE, CAMERA = 0, 1, 3
"""Sensors by Edge Impulse's numbers."""
NO_ANOMALY, SCORE, MAP = 0, 1, 4
"""`has_anomaly`: none, one score (k-means), or a score for each part of a picture (PatchCore)."""
OTHER_ENGINE = 255
MODEL_TYPES = {
    "classification": "classification",
    "multi_label": "classification",
    "regression": "classification",
    "anomaly": "classification",
    "detection": "object_detection",
    "embedding": "freeform",
    "raw": "freeform",
}
"""The tasks whose answers the protocol can express. Edge Impulse gives regressions as classifications, too."""
RESIZE_MODES = {"stretch": "squash", "crop": "fit-shortest", "letterbox": "fit-longest"}
DTYPES = {"image": ("uint8",), "audio": ("float32",)}
"""The dtypes of raw samples into which the numbers of clients can be converted; other kinds take all."""


class Threshold(NamedTuple):
    """The only threshold of a bundle, which clients change by its `id`. `field` names the value in their messages."""

    type: str
    field: str
    value: float
    id: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the threshold as clients read it."""
        return {"id": self.id, "type": self.type, self.field: self.value}


def check(manifest: Manifest) -> None:
    """Raise InputError unless clients can send samples of this bundle and read its answers."""
    raw, needs = manifest.raw, "use edgekit serve instead"
    if manifest.task not in MODEL_TYPES:
        raise InputError(f"its task is {manifest.task}, which Edge Impulse's protocol cannot express; {needs}")
    if manifest.states:
        raise InputError(f"its model has states, but Edge Impulse's samples are independent; {needs}")
    if raw.kind in ("text", "tensors"):
        what = "texts" if raw.kind == "text" else "several tensors"
        raise InputError(f"its samples are {what}, but Edge Impulse's clients send one list of numbers; {needs}")
    if raw.dtype not in DTYPES.get(raw.kind, (raw.dtype,)):
        raise InputError(
            f"its samples are {raw.dtype}, but Edge Impulse's clients send "
            f"{'pixels of bytes' if raw.kind == 'image' else 'sound as 16-bit numbers'}; {needs}"
        )
    if raw.kind == "image" and raw.shape[2:] not in ((1,), (3,)):
        raise InputError(f"its samples have the shape {list(raw.shape)}, but a picture has 1 or 3 channels; {needs}")


def feature_count(raw: RawSpec) -> int:
    """Return how many numbers clients send for a sample. A pixel is one number, whatever its channels."""
    return math.prod(raw.shape[:2] if raw.kind == "image" else raw.shape)


def describe(manifest: Manifest) -> dict[str, Any]:
    """Return `project` and `model_parameters` of the answer to `hello`."""
    return {
        "project": {
            "id": 1,
            "owner": "edgekit",
            "name": manifest.name,
            "deploy_version": _version_number(manifest.version),
        },
        "model_parameters": {**_input(manifest.raw), **_output(manifest), "inferencing_engine": OTHER_ENGINE},
    }


def threshold(manifest: Manifest) -> Threshold | None:
    """Return the probability from which boxes are listed, the score above which parts of a picture are, or None."""
    if manifest.task == "detection":
        return Threshold("object_detection", "min_score", BoxOptions(**manifest.boxes or {}).least_probability)
    if manifest.task == "anomaly" and manifest.threshold is not None:
        return Threshold("anomaly_gmm", "min_anomaly_score", manifest.threshold)
    return None


def has_anomaly(manifest: Manifest) -> int:
    """Return Edge Impulse's number for the kind of anomaly that the bundle finds."""
    if manifest.task != "anomaly":
        return NO_ANOMALY
    return MAP if anomaly.gives_map(manifest) else SCORE


def _input(raw: RawSpec) -> dict[str, Any]:
    is_image, is_sound = raw.kind == "image", raw.kind == "audio"
    height, width, channels = raw.shape if is_image else (0, 0, 0)
    resize = input_path.find_step(raw.steps, "resize_picture")
    windows = input_path.find_step(raw.steps, "windows")
    rate_hz = raw.sample_rate_hz or 0
    return {
        "sensor": CAMERA if is_image else MICROPHONE if is_sound else UNKNOWN,
        "frequency": rate_hz,
        "interval_ms": 1000 / rate_hz if rate_hz else 1,
        "axis_count": raw.shape[-1] if raw.kind in ("window", "vector") else 1,
        "input_features_count": feature_count(raw),
        "image_input_width": width,
        "image_input_height": height,
        "image_input_frames": int(is_image),
        "image_channel_count": channels,
        "image_resize_mode": RESIZE_MODES[resize["fit"] if resize else "stretch"] if is_image else "none",
        "slice_size": windows["stride"] if is_sound and windows else 0,
        "use_continuous_mode": False,
    }


def _output(manifest: Manifest) -> dict[str, Any]:
    model_type = MODEL_TYPES[manifest.task]
    has_labels = model_type != "freeform" and manifest.task != "anomaly"
    labels, limit = list(manifest.labels) if has_labels else [], threshold(manifest)
    return {
        "model_type": model_type,
        "label_count": len(labels),
        "labels": labels,
        "has_anomaly": has_anomaly(manifest),
        "thresholds": [limit.to_dict()] if limit else [],
    }


def _version_number(version: str) -> int:
    """Return a whole number that grows with the version: 1002003 for 1.2.3, and 1 for a version without numbers."""
    numbers = [int(part[:3]) for part in re.findall(r"\d+", version)[:3]] or [0, 0, 1]
    return sum(number * factor for number, factor in zip(numbers, (1_000_000, 1000, 1)))
