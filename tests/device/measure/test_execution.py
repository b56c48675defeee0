"""What is timed of a model: what a device calls `execute`, whatever type the model takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.execution import timed_call
from edgekit.runner import bundle
from edgekit.runner.model import open_model
from edgekit.runner.preprocess.transform import apply, to_layout


@pytest.mark.parametrize("key", ["tflite", "tflite-int8", "openvino", "onnx"])
def test_it_does_what_execute_does_and_the_input_is_made_before(key: str, bundles: dict[str, Path]) -> None:
    model = open_model(bundle.read(bundles[key]))
    raw = np.random.default_rng(0).integers(0, 256, model.manifest.raw.shape).astype(np.uint8)
    backend: Any = model.backend
    x = np.ascontiguousarray(to_layout(apply(model.manifest.preprocess, raw[None]), model.manifest.input.layout))
    expected = model.execute(model.prepare(raw))
    call = timed_call(backend, x)
    assert (backend.encode is None) == (key != "tflite-int8")
    backend.encode = None  # a call that converted would now hand over floats
    found = call()
    assert np.array_equal(found[0], expected) and found.dtype == np.float32
