"""Models that come as files: what a file is, how it is run as it came, and what each target is made of.

A kind of file is one module here. Each has

- `open(path, threads) -> Opened`, how it is run, in whatever framework it came from;
- for each target either a function of that name, the float model that the target's precisions are made of, or an entry
  in `NOT`, why there is none and what to do instead.

What a file is, its content decides and not its name (`kinds.find`).
"""

from __future__ import annotations

import importlib
from typing import Any

from edgekit.core import telemetry

telemetry.off()

CALLED = {
    "exported": "an exported PyTorch program",
    "keras": "a Keras model",
    "onnx": "an ONNX model",
    "openvino": "an OpenVINO model",
    "tflite": "a TFLite model",
}
"""What messages and tables call each kind."""


def module(kind: str) -> Any:
    """The module of a kind, imported only where it is needed; its framework is imported by its functions."""
    return importlib.import_module(f"edgekit.models.files.{kind}")
