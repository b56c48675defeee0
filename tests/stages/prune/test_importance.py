"""Importance: each measure, by layer and over the whole network, takes the channels that do not matter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ConfigError
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.store import ModelSpec
from edgekit.stages.prune import PruneConfig, structured
from edgekit.stages.prune.structured import MEASURES, accumulate_gradients
from tests.stages.prune.test_structured import spec

WIDTH = 16
DEAD = 5
TRAIN = Split(
    np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3)).astype(np.uint8), np.arange(40, dtype=np.int64) % 10
)


def config(**options: object) -> PruneConfig:
    given = {"ratio": 0.5, "steps": 2, "channel_multiple": 1, "taylor_samples": 20, **options}
    return PruneConfig.model_validate(given)


def convolutions(module: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]


def pruned(described: ModelSpec, options: PruneConfig, module: nn.Module | None = None) -> nn.Module:
    module = module or store.build(described)
    for _ in structured.steps(module, described, options, TRAIN):
        pass
    return module


def widths(module: nn.Module) -> list[int]:
    return [layer.out_channels for layer in convolutions(module)]


@pytest.mark.parametrize(("importance", "scope"), itertools.product(MEASURES, ("layer", "global")))
def test_every_measure_prunes_and_keeps_the_classes(importance: str, scope: str) -> None:
    described = spec("ds_cnn:ds_cnn", width=WIDTH, blocks=2)
    options = config(importance=importance, scope=scope)
    module = pruned(described, options)
    before = cost(store.build(described), described.input_shape)
    assert cost(module, described.input_shape).macs < 0.75 * before.macs
    assert module(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_every_layer_loses_the_same_share_or_what_matters_least_goes_first() -> None:
    described = spec("resnet:resnet8")
    full = widths(store.build(described))
    by_layer, over_all = (widths(pruned(described, config(scope=scope))) for scope in ("layer", "global"))
    assert {now / before for now, before in zip(by_layer, full, strict=True)} == {0.5}
    assert len({now / before for now, before in zip(over_all, full, strict=True)}) > 2


@pytest.mark.parametrize("multiple", [1, 4])
def test_no_layer_loses_more_than_its_limit_in_a_single_step(multiple: int) -> None:
    described = spec("ds_cnn:ds_cnn", width=WIDTH, blocks=2)
    module = store.build(described)
    with torch.no_grad():
        convolutions(module)[0].weight.mul_(1e-4)
    options = config(scope="global", ratio=0.6, max_layer_ratio=0.7, steps=1, channel_multiple=multiple)
    left = widths(pruned(described, options, module))
    assert min(left) >= WIDTH * 0.3
    assert max(left) < WIDTH
    assert all(now % multiple == 0 for now in left)


def test_a_layer_that_matters_to_nobody_keeps_what_no_measure_may_take() -> None:
    described = spec("ds_cnn:ds_cnn", width=WIDTH, blocks=1)
    module = store.build(described)
    stem, depthwise, pointwise = convolutions(module)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    with torch.no_grad():
        for weight in (stem.weight, depthwise.weight, pointwise.weight, norms[0].weight, norms[1].weight):
            weight.mul_(0.0)
    left = pruned(described, config(scope="global", ratio=0.7, max_layer_ratio=0.75, steps=1), module)
    assert min(widths(left)) >= WIDTH * 0.25
    assert sum(widths(left)) < 3 * WIDTH


def test_more_than_any_layer_may_lose_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ratio \(0.9\) and max_layer_ratio \(0.8\) disagree"):
        config(ratio=0.9).check_consistency()


class Deaf(nn.Module):
    """Two convolutions of one width; what channel DEAD of the first says is not heard, as loud as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, 10)
        with torch.no_grad():
            self.first.weight[DEAD] *= 10
            self.second.weight[:, DEAD] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x).relu()).relu().mean((2, 3)))


def deaf(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Deaf()


def test_taylor_takes_the_channel_that_does_not_matter_and_a_norm_does_not() -> None:
    described = spec("tests.stages.prune.test_importance:deaf")
    loud = store.build(described).first.weight.detach()[DEAD]
    there = {}
    for importance in ("taylor", "l2"):
        module = pruned(described, config(importance=importance, ratio=1.01 / WIDTH, steps=1))
        assert module.first.out_channels == WIDTH - 2 or module.first.out_channels == WIDTH - 1
        there[importance] = any(torch.equal(weight, loud) for weight in module.first.weight.detach())
    assert there == {"taylor": False, "l2": True}


def test_gradients_are_those_of_the_mean_loss_and_the_same_each_time() -> None:
    described = spec("ds_cnn:ds_cnn", width=WIDTH, blocks=1)
    module = store.build(described).train()
    found = []
    for _ in range(2):
        accumulate_gradients(module, TRAIN, [], 40)
        found.append([parameter.grad.clone() for parameter in module.parameters()])
    assert all(torch.equal(first, second) for first, second in zip(*found, strict=True))
    assert not module.training
    module.zero_grad()
    x = torch.from_numpy(TRAIN.x.astype(np.float32)).permute(0, 3, 1, 2)
    nn.functional.cross_entropy(module(x), torch.from_numpy(TRAIN.y)).backward()
    for parameter, gradient in zip(module.parameters(), found[0], strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-4)


def test_fewer_samples_are_taken_evenly_from_the_split() -> None:
    described = spec("ds_cnn:ds_cnn", width=WIDTH, blocks=1)
    module = store.build(described)
    accumulate_gradients(module, TRAIN, [], 3)
    few = [parameter.grad.clone() for parameter in module.parameters()]
    accumulate_gradients(module, TRAIN.take(np.array([0, 20, 39])), [], 99)
    assert all(torch.equal(one, parameter.grad) for one, parameter in zip(few, module.parameters(), strict=True))


def test_gradients_are_those_of_the_task() -> None:
    """A regression of one value: cross entropy over one class would be nought, and so would its gradients."""
    torch.manual_seed(0)
    module = nn.Linear(4, 1)
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    accumulate_gradients(module, Split(x, x[:, :1] + 3), [], 8, "regression")
    found = module.weight.grad.clone()
    module.zero_grad()
    nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(x[:, :1] + 3)).backward()
    torch.testing.assert_close(found, module.weight.grad)
    assert found.abs().min() > 0


def test_weights_of_a_perfect_reconstruction_have_no_gradient() -> None:
    module = nn.Linear(4, 4)
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    with torch.no_grad():
        module.weight.copy_(torch.eye(4))
        module.bias.zero_()
    accumulate_gradients(module, Split(x, np.zeros(8, np.int64)), [], 8, "anomaly")
    assert module.weight.grad.abs().max() == 0


def test_the_outputs_of_a_transposed_convolution_stay() -> None:
    described = spec("tests.stages.prune.test_importance:mirror")
    module = pruned(described, config(ratio=0.5, steps=1))
    assert module.down.out_channels == WIDTH // 2 and module.up.out_channels == 10


class Mirror(nn.Module):
    """Down and up again, ten channels at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(WIDTH, 10, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x).relu()).mean((2, 3))


def mirror(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Mirror()
