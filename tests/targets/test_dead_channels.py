"""A channel of zeros keeps its bias through TFLite int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.stages.convert import numerics
from edgekit.targets import evaluate
from edgekit.targets.tflite import convert


def network_with_dead_channels(folder: Path, sign: int) -> np.ndarray:
    """A depthwise network, some channels of which only add what is left of their batch norm; inputs (n, C, H, W).

    So does the first class, with a bias of this sign: behind a ReLU a lost negative one would not be seen.
    """
    spec = store.ModelSpec(
        builder="edgekit.models.ds_cnn:ds_cnn",
        kwargs={"width": 8, "blocks": 2},
        input_shape=(1, 16, 16),
        num_classes=4,
        classes=tuple("abcd"),
        raw={"kind": "image", "shape": [16, 16, 1], "dtype": "uint8"},
    )
    module = store.build(spec, seed=1)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.bias.uniform_(0.5, 1.0, generator=torch.Generator().manual_seed(1))
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight[::3] = 0
            if isinstance(layer, torch.nn.Linear):
                layer.weight[0] = 0
                layer.bias[0] = sign
    store.save(folder, module, spec)
    return np.random.default_rng(0).normal(size=(64, 1, 16, 16)).astype(np.float32)


@pytest.mark.numerics
@pytest.mark.parametrize("sign", [1, -1])
def test_int8_stays_close_to_float(sign: int, tmp_path: Path) -> None:
    inputs = network_with_dead_channels(tmp_path / "model", sign)
    reference = evaluate.torch_outputs(tmp_path / "model", inputs)
    (tmp_path / "int8").mkdir()
    files = convert.convert(tmp_path / "model", "int8", inputs, tmp_path / "int8")
    outputs = evaluate.file_outputs("test", "tflite", tmp_path / "int8", files, inputs)
    assert numerics.compare(reference, outputs).snr_db > 25
