"""Models that come as files: the format of a file, how it runs unmodified, and what each target is made from.

Each format is one module here. It has

- `open(path, threads) -> Opened`, which runs the file in its own framework;
- for each target a function of that name, which makes the float model for the target's precisions, or an entry in
  `NOT`: why there is none, and what to do instead.

The format is detected from the content, not the extension (`detect.model_kind`).
"""

from __future__ import annotations

import importlib
from typing import Any

from edgekit.core import telemetry

telemetry.off()

TITLES = {
    "exported": "an exported PyTorch program",
    "keras": "a Keras model",
    "onnx": "an ONNX model",
    "openvino": "an OpenVINO model",
    "tflite": "a TFLite model",
}
"""The name of each format in messages and tables."""


def module(kind: str) -> Any:
    """The module of a format. Its functions import the framework, so importing it is cheap."""
    return importlib.import_module(f"edgekit.models.files.{kind}")
