"""The TFLite inside tensorflow, for a machine that has it anyway; its import takes seconds, so it comes last."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.runner.backends._common import installed
from edgekit.runner.backends._tflite import TfliteBackend, open_tflite

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

TARGETS = ("tflite",)
DISTRIBUTION = "tensorflow"
PACKAGE = "tensorflow"


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
    return open_tflite(
        "tensorflow", DISTRIBUTION, _interpreter, files, (inputs, outputs), threads, device, batch, states
    )


def _interpreter() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # warnings and errors: which GPU it looked for is no concern
    from tensorflow import lite

    def interpreter(**options: Any) -> Any:
        with warnings.catch_warnings():  # it says that ai-edge-litert follows it, on every start
            warnings.simplefilter("ignore")
            return lite.Interpreter(**options)

    return interpreter
