"""A layer scale of four axes, as a ConvNeXt has it, is folded into a bias that TFLite int8 can have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.stages.convert import numerics
from edgekit.targets import evaluate
from edgekit.targets.tflite import convert


@pytest.mark.numerics
def test_a_layer_scale_that_was_trained_becomes_int8(tmp_path: Path) -> None:
    spec = store.ModelSpec(
        builder="tests.zoo.networks:convnext_scaled",
        kwargs={},
        input_shape=(3, 16, 16),
        num_classes=4,
        classes=tuple("abcd"),
        raw={"kind": "image", "shape": [16, 16, 3], "dtype": "uint8"},
    )
    module = store.build(spec, seed=1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith(".scale"):
                parameter.uniform_(0.3, 0.8)  # each channel its own, as after a training
    store.save(tmp_path / "model", module, spec)
    x = np.random.default_rng(0).normal(size=(32, 3, 16, 16)).astype(np.float32)
    reference = evaluate.torch_outputs(tmp_path / "model", x)
    files = convert.convert(tmp_path / "model", "int8", x, tmp_path / "int8")
    outputs = evaluate.file_outputs("test", "tflite", tmp_path / "int8", files, x)
    assert numerics.compare(reference, outputs).snr_db > 25
