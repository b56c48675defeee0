"""LiteRT: Google's current TFLite interpreter, from the distribution ai-edge-litert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.runner.backends._common import installed
from edgekit.runner.backends._tflite import TfliteBackend, open_tflite

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

TARGETS = ("tflite",)
DISTRIBUTION = "ai-edge-litert"
PACKAGE = "ai_edge_litert"


def available() -> bool:
    """Whether the package is installed."""
    return installed(PACKAGE)


def open(
    files: Mapping[str, bytes],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    threads: int,
    device: str = "CPU",
    batch: int = 1,
    states: Sequence[StateSpec] = (),
) -> TfliteBackend:
    """Open the one .tflite file, from memory."""
    return open_tflite("litert", DISTRIBUTION, _interpreter, files, (inputs, outputs), threads, device, batch, states)


def _interpreter() -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter
