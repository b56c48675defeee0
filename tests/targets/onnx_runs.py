"""Small ONNX models as ONNX Runtime runs them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from edgekit.runner.backends import onnxruntime as runner


def run(content: bytes, x: np.ndarray) -> np.ndarray:
    """The only output for the only input."""
    session = runner.session(content, _options())
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def kinds_run(content: bytes) -> list[str]:
    """The operators that are left when it has optimised the graph."""
    with tempfile.TemporaryDirectory() as folder:
        options = _options()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        runner.session(content, options)
        return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options
