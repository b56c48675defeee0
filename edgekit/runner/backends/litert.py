"""LiteRT: Google's current TFLite interpreter, from the distribution ai-edge-litert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.runner.backends._common import cannot_open, installed, only
from edgekit.runner.backends._tflite import TfliteBackend

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec

TARGET = "tflite"
DISTRIBUTION = "ai-edge-litert"


def available() -> bool:
    """Whether the package is installed."""
    return installed("ai_edge_litert")


def open(files: Mapping[str, bytes], input: TensorSpec, output: TensorSpec, threads: int) -> TfliteBackend:
    """Open the one .tflite file, from memory."""
    model = only(files, ".tflite")
    try:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_content=model, num_threads=threads)
        return TfliteBackend("litert", DISTRIBUTION, interpreter, input, output)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise cannot_open("litert", error) from error
