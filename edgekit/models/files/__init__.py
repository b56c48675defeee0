"""Models that come as files: their formats, how they run unmodified, and how they are converted for each target.

Each format is one module here. It has

- `open(path, threads) -> OpenedModel`, which runs the file in its own framework;
- for each target a function with the target's name, which makes the float model for the target's precisions, or an
  entry in `UNSUPPORTED_TARGETS`, which says why there is none and what to do instead.

The format is detected from the content, not the extension (`detect.model_kind`).
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from edgekit.core import telemetry

telemetry.disable()

TITLES = {
    "exported": "an exported PyTorch program",
    "keras": "a Keras model",
    "onnx": "an ONNX model",
    "openvino": "an OpenVINO model",
    "tflite": "a TFLite model",
}
"""The name of each format in messages and tables."""


def module(kind: str) -> Any:
    """Import the module of a format. This is fast, because only its functions import the framework."""
    return importlib.import_module(f"edgekit.models.files.{kind}")


def import_in_background(kind: str) -> None:
    """Begin to import the framework of a format in a thread, if that takes seconds, as it does for Keras.

    Code that needs the framework meanwhile waits until it is there.
    """
    if load := getattr(module(kind), "load_framework", None):
        threading.Thread(target=load, daemon=True).start()
