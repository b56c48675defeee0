"""The way around oneDNN's fault changes no result and leaves no trace; without it, the last test's training crashes."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from edgekit.models.onednn import strided_pointwise_as_slices
from edgekit.models.resnet import resnet

TRAIN = """
from edgekit.core.config import TrainOptions
from edgekit.data import load, parse
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training.fit import fit

data = load(parse({"source": "digits"}))
steps = [{"step": "scale", "factor": 1 / 255}]
spec = spec_for(data, "edgekit.models.resnet:resnet", {"depth": 8, "width": 8}, steps)
fit(store.build(spec), data, steps, TrainOptions(epochs=3), seed=0, device="cpu", threads=2)
"""


def test_the_forward_is_the_same_bit_for_bit_and_strides_come_back() -> None:
    torch.manual_seed(0)
    module = resnet((1, 32, 32), 10, depth=8, width=8).eval()
    strides = [layer.stride for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    x = torch.rand(4, 1, 32, 32)
    with torch.no_grad():
        before = module(x)
        with strided_pointwise_as_slices(module):
            assert [layer.stride for layer in module.modules() if isinstance(layer, nn.Conv2d)] != strides
            assert torch.equal(module(x), before)
        assert torch.equal(module(x), before)
    assert [layer.stride for layer in module.modules() if isinstance(layer, nn.Conv2d)] == strides


def test_strides_come_back_after_an_error() -> None:
    layer = nn.Conv2d(4, 4, 1, stride=2)
    try:
        with strided_pointwise_as_slices(layer):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert layer.stride == (2, 2)


def test_wide_or_spatial_convolutions_are_left_alone() -> None:
    module = nn.Sequential(nn.Conv2d(16, 4, 1, stride=2), nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 4, 1))
    with strided_pointwise_as_slices(module):
        assert [layer.stride for layer in module] == [(2, 2), (2, 2), (1, 1)]  # type: ignore[comparison-overlap]


def test_a_narrow_resnet_trains_without_a_crash() -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
