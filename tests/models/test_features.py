"""Feature maps: the last of each spatial size, for the reference networks and for a user's odd ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgekit.core.errors import ModelError
from edgekit.models.conv1d import conv1d
from edgekit.models.ds_cnn import ds_cnn
from edgekit.models.features import Features
from edgekit.models.mobilenet_v1 import mobilenet_v1
from edgekit.models.mobilenet_v2 import mobilenet_v2
from edgekit.models.resnet import resnet, resnet8

SHAPE = (3, 32, 32)


def sizes(module: nn.Module, shape: tuple[int, ...] = SHAPE) -> list[tuple[int, ...]]:
    with Features(module, shape) as features:
        return [tuple(x.shape[2:]) for x in features()]


@pytest.mark.parametrize(
    ("builder", "wide", "narrow", "sides"),
    [
        (resnet, {"width": 16}, {"width": 8, "depth": 8}, [32, 16, 8]),
        (resnet8, {"width": 16}, {"width": 4}, [32, 16, 8]),
        (mobilenet_v1, {"alpha": 0.5}, {"alpha": 0.25}, [32, 16, 8, 4]),
        (mobilenet_v2, {"alpha": 0.5}, {"alpha": 0.35, "last": 64}, [32, 16, 8, 4]),
        (ds_cnn, {"width": 48, "blocks": 2}, {"width": 16}, [16]),
        (ds_cnn, {"width": 48, "block_strides": [2, 1, 2, 1]}, {"width": 8, "block_strides": [2, 2, 1, 1]}, [16, 8, 4]),
    ],
)
def test_networks_of_different_widths_give_the_same_sizes(
    builder: Callable[..., nn.Module], wide: dict[str, Any], narrow: dict[str, Any], sides: list[int]
) -> None:
    assert sizes(builder(SHAPE, 10, **wide)) == sizes(builder(SHAPE, 10, **narrow)) == [(side, side) for side in sides]


def test_a_network_of_windows_gives_maps_over_time() -> None:
    assert sizes(conv1d((128, 3), 10, width=8), (128, 3)) == sizes(conv1d((128, 3), 10), (128, 3))
    assert sizes(conv1d((128, 3), 10), (128, 3)) == [(1, 64), (1, 32), (1, 16)]
    module, x = conv1d((128, 3), 10).train(), torch.rand(5, 128, 3)
    with Features(module, (128, 3)) as features:
        module(x)
        maps = features()
    assert [tuple(each.shape) for each in maps] == [(5, 16, 1, 64), (5, 32, 1, 32), (5, 64, 1, 16)]
    sum(each.square().mean() for each in maps).backward()  # type: ignore[union-attr]
    assert module.blocks[0][0].weight.grad.abs().sum() > 0  # type: ignore[index]


def test_a_residual_networks_maps_are_its_groups_outputs() -> None:
    module = resnet(SHAPE, 10, depth=14, width=4).eval()
    x = torch.rand(2, *SHAPE)
    with Features(module, SHAPE) as features, torch.no_grad():
        module(x)
        first = module.blocks[:2](module.stem(x))
        second = module.blocks[2:4](first)
        third = module.blocks[4:](second)
        module(x)
        maps = features()
    assert all(torch.equal(got, expected) for got, expected in zip(maps, (first, second, third), strict=True))


def test_each_forward_replaces_the_maps_and_gradients_flow_through_them() -> None:
    module = resnet8(SHAPE, 10, width=4).train()
    with Features(module, SHAPE) as features:
        assert [len(x) for x in features()] == [1, 1, 1]
        module(torch.rand(5, *SHAPE))
        assert [len(x) for x in features()] == [5, 5, 5]
        sum(x.square().mean() for x in features()).backward()  # type: ignore[union-attr]
    assert module.stem[0].weight.grad.abs().sum() > 0  # type: ignore[index]


def test_maps_of_an_earlier_forward_do_not_linger() -> None:
    module = resnet8(SHAPE, 10, width=4)
    with Features(module, SHAPE) as features:
        module(torch.rand(1, 3, 64, 64))
        assert [tuple(x.shape[2:]) for x in features()] == [(64, 64), (32, 32), (16, 16)]


class Functional(nn.Module):
    """A block without a module for what it does last, and one ReLU for all."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.relu(self.conv(self.relu(x))))


def test_a_users_sequential_with_functional_blocks() -> None:
    module = nn.Sequential(Functional(), nn.MaxPool2d(2), Functional(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.rand(2, 3, 8, 4)
    with Features(module, (3, 8, 4)) as features:
        module(x)
        maps = features()
    fine = module[0](x)
    assert torch.equal(maps[0], fine)
    assert torch.equal(maps[1], module[2](module[1](fine)))
    assert len(maps) == 2


def test_a_network_that_takes_token_ids_is_tried_with_ids() -> None:
    module = nn.Sequential(nn.Embedding(9, 4), nn.Unflatten(1, (1, 6)), nn.Conv2d(1, 2, 3, padding=1))
    with Features(module, (6,), ids=True) as features:
        assert [tuple(each.shape) for each in features()] == [(1, 2, 6, 4)]


def test_maps_stand_in_the_order_in_which_they_were_made() -> None:
    """An hourglass comes back to its first size last."""
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.Flatten())
    assert sizes(module, (3, 8, 8)) == [(4, 4), (8, 8)]


def test_leaves_no_trace() -> None:
    module = resnet8(SHAPE, 10, width=4).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with Features(module, SHAPE) as features:
        assert module.training
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert features() == ()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(8, 4), nn.ReLU()), (8,)),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)), SHAPE),
        (nn.Flatten(), SHAPE),
    ],
)
def test_a_network_without_maps_is_refused_and_left_as_it_was(module: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"no layer gives feature maps .* choose a loss that compares logits"):
        Features(module, shape).__enter__()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
