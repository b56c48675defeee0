"""The way around oneDNN's fault changes no result and leaves no trace, and trials, importance and training take it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from edgekit.core.config import TrainOptions
from edgekit.data import Data, load, parse
from edgekit.models import dry_run, store
from edgekit.models.from_artifact import spec_for
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.models.resnet import resnet
from edgekit.models.spec import ModelSpec
from edgekit.stages.prune.structured import accumulate_gradients
from edgekit.training.fit import fit

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


STEPS = [{"step": "scale", "factor": 1 / 255}]


def importance(spec: ModelSpec, data: Data) -> None:
    accumulate_gradients(store.build(spec), data.train, STEPS, samples=8)


def training(spec: ModelSpec, data: Data) -> None:
    fit(store.build(spec), data, STEPS, TrainOptions.model_validate({"epochs": 1}), seed=0, device="cpu", threads=1)


GRADIENTS: dict[str, Callable[[ModelSpec, Data], object]] = {
    "dry run": lambda spec, data: dry_run.build_and_check(spec, 0, data),
    "importance": importance,
    "training": training,
}


@contextmanager
def watched() -> Iterator[None]:
    """AssertionError before a narrow 1x1 convolution runs with a stride where gradients are needed, or if none runs."""
    seen: list[nn.Conv2d] = []

    def see(layer: nn.Module, _: object) -> None:
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and torch.is_grad_enabled():
            assert layer.stride == (1, 1), f"{layer}: its gradient would spoil memory"
            seen.append(layer)

    handle = register_module_forward_pre_hook(see)
    try:
        yield
    finally:
        handle.remove()
    assert seen


@pytest.mark.parametrize("way", GRADIENTS)
def test_no_gradient_is_taken_of_a_narrow_strided_convolution(way: str) -> None:
    """Such a gradient writes into memory of others: the process hangs, or crashes much later."""
    data = load(parse({"source": "digits", "limit": 100, "calibration_samples": 20}))
    spec = spec_for(data, "edgekit.models.resnet:resnet", {"depth": 8, "width": 4}, STEPS)
    with watched():
        GRADIENTS[way](spec, data)


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
