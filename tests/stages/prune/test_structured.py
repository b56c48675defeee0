"""Structured pruning: channels really go, on every kind of reference network, and the classes never do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.data import Split
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.stages.prune import PruneConfig, structured

CLASSES = tuple("0123456789")
NO_SAMPLES = Split(np.zeros((0, 32, 32, 3), np.uint8), np.zeros(0, np.int64))
NETWORKS = {
    "resnet:resnet": {"depth": 8, "width": 16},
    "resnet:resnet8": {},
    "ds_cnn:ds_cnn": {"width": 32},
    "mobilenet_v1:mobilenet_v1": {"alpha": 0.25},
    "mobilenet_v2:mobilenet_v2": {},
    "efficientnet_lite:efficientnet_lite0": {"padding": "tensorflow"},
    "conv1d:conv1d": {},
}


def spec(builder: str, **kwargs: object) -> store.ModelSpec:
    return store.ModelSpec(
        builder=f"edgekit.models.{builder}" if builder.count(".") == 0 else builder,
        kwargs=kwargs,
        input_shape=(64, 3) if "conv1d" in builder else (3, 32, 32),
        num_classes=10,
        classes=CLASSES,
        raw={"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"},
    )


def config(**options: object) -> PruneConfig:
    return PruneConfig.model_validate({"ratio": 0.5, "steps": 2, "channel_multiple": 1, **options})


@pytest.mark.parametrize("builder", NETWORKS)
def test_every_step_leaves_a_smaller_network_with_all_its_classes(builder: str) -> None:
    described = spec(builder, **NETWORKS[builder])
    module = store.build(described)
    spent = [cost(module, described.input_shape)]
    aimed = []
    for share, keep_up in structured.steps(module, described, config(), NO_SAMPLES):
        assert keep_up is None
        aimed.append(share)
        spent.append(cost(module, described.input_shape))
        assert module(torch.zeros(2, *described.input_shape)).shape == (2, 10)
    assert aimed == [0.25, 0.5]
    assert spent[0].macs > spent[1].macs > spent[2].macs
    assert spent[0].parameters > spent[1].parameters > spent[2].parameters
    assert spent[2].macs < 0.5 * spent[0].macs


def test_channels_are_rounded_to_what_the_kernels_like() -> None:
    described = spec("ds_cnn:ds_cnn", width=48)
    module = store.build(described)
    for _ in structured.steps(module, described, config(ratio=0.4, channel_multiple=8), NO_SAMPLES):
        pass
    widths = {layer.out_channels for layer in module.modules() if isinstance(layer, torch.nn.Conv2d)}
    assert widths
    assert all(width % 8 == 0 and width < 48 for width in widths)


def test_the_weakest_channels_go_first() -> None:
    described = spec("ds_cnn:ds_cnn", width=16, blocks=1)
    module = store.build(described)
    stem, depthwise, pointwise = (layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        for weight in (stem.weight, depthwise.weight, pointwise.weight.transpose(0, 1)):
            weight[::2] = 1e-6
    strong = stem.weight.detach()[1::2].clone()
    for _ in structured.steps(module, described, config(steps=1), NO_SAMPLES):
        pass
    assert torch.equal(stem.weight.detach(), strong)


class Detached(torch.nn.Module):
    """Its first convolution is hidden from autograd, and so from the dependency graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.first(x).mean((2, 3))
        return self.head(x)


def test_a_network_whose_graph_cannot_be_seen_is_left_as_it_is() -> None:
    described = spec("tests.stages.prune.test_structured:Detached")
    module = Detached()
    before = cost(module, described.input_shape)
    for _ in structured.steps(module, described, config(), NO_SAMPLES):
        pass
    assert cost(module, described.input_shape) == before
