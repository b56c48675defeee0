"""tflite-runtime 2.14, the last release: for devices with Python 3.11 or older and numpy 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.runner.backends._common import cannot_open, installed, only
from edgekit.runner.backends._tflite import TfliteBackend

if TYPE_CHECKING:
    from edgekit.runner.manifest import TensorSpec

TARGET = "tflite"
DISTRIBUTION = "tflite-runtime"


def available() -> bool:
    """Whether the package is installed."""
    return installed("tflite_runtime")


def open(files: Mapping[str, bytes], input: TensorSpec, output: TensorSpec, threads: int) -> TfliteBackend:
    """Open the one .tflite file, from memory."""
    model = only(files, ".tflite")
    try:
        from tflite_runtime.interpreter import Interpreter

        interpreter = Interpreter(model_content=model, num_threads=threads)
        return TfliteBackend("tflite_runtime", DISTRIBUTION, interpreter, input, output)
    except (ImportError, AttributeError, ValueError, RuntimeError) as error:
        raise cannot_open("tflite_runtime", error) from error
