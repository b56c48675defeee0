"""tflite-runtime 2.14, the last release: for devices with Python 3.11 or older and numpy 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends._common import installed
from edgekit.runner.backends._tflite import TfliteBackend, open_tflite
from edgekit.runner.errors import BackendError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import StateSpec, TensorSpec

TARGETS = ("tflite",)
DISTRIBUTION = "tflite-runtime"
PACKAGE = "tflite_runtime"


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
        "tflite_runtime", DISTRIBUTION, _interpreter, files, (inputs, outputs), threads, device, batch, states
    )


def _interpreter() -> Any:
    if not np.__version__.startswith("1."):  # it would import, and die as it opens the model
        raise BackendError(
            f"tflite_runtime was built for numpy 1, this is numpy {np.__version__}; "
            "run: pip install 'numpy<2', or where your Python has it: pip install ai-edge-litert"
        )
    from tflite_runtime.interpreter import Interpreter

    return Interpreter
