"""The optimizers of torch by name: what decays, refused arguments, and trainings that go on to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgekit.core.errors import ConfigError
from edgekit.training import optimizers
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import fit
from tests.training.test_checkpoint import Stopped, stop_after
from tests.training.test_fit import SCALE, bars, blobs, convolutions, data_of, options, perceptron, same

CHOICES: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"momentum": 0, "nesterov": False}),
    ("adamw", {}),
    ("adamw", {"betas": [0.8, 0.95], "eps": 1e-6, "amsgrad": True}),
    ("rmsprop", {"alpha": 0.9, "momentum": 0.9, "centered": True}),
]


@pytest.mark.parametrize("name", ["adamw", "rmsprop"])
def test_it_learns(name: str) -> None:
    chosen = options(8, optimizer=name, learning_rate=0.02)
    history = fit(perceptron(), data_of(blobs, "vector", 3), [], chosen, seed=0, device="cpu", threads=1)
    assert history.best.validation_accuracy > 0.95


@pytest.mark.parametrize(("name", "arguments"), CHOICES)
def test_a_stopped_training_goes_on_to_the_same_bits(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    data = data_of(bars, "image", 2)
    chosen = options(4, optimizer=name, optimizer_options=arguments, learning_rate=0.01)
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    whole, again = convolutions(), convolutions(9)
    expected = fit(whole, data, SCALE, chosen, seed=3, device="cpu", threads=1)
    with pytest.raises(Stopped):
        fit(convolutions(), data, SCALE, chosen, seed=3, device="cpu", threads=1, resume=place, on_epoch=stop_after(2))
    assert fit(again, data, SCALE, chosen, seed=3, device="cpu", threads=1, resume=place) == expected
    assert same(again, whole)


def test_biases_and_scales_of_norms_do_not_decay() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    module[0].bias.requires_grad_(False)
    decaying, others = optimizers.parameter_groups(module, options(weight_decay=0.3))
    assert [each.shape for each in decaying["params"]] == [(2, 1, 3, 3), (2, 2)] and decaying["weight_decay"] == 0.3
    assert [each.shape for each in others["params"]] == [(2,), (2,), (2,)] and others["weight_decay"] == 0


def test_adamw_decays_by_a_share_of_the_weights_and_sgd_through_its_gradient() -> None:
    """Loshchilov and Hutter 2019, algorithm 2: with a gradient of zero, only the decay is left."""
    for name, left in (("adamw", 1 - 0.1 * 0.5), ("sgd", 1 - 0.1 * 0.5 * 1.9), ("rmsprop", None)):
        layer = nn.Linear(3, 1, bias=False)
        before = layer.weight.detach().clone()
        layer.weight.grad = torch.zeros_like(before)
        optimizers.build(layer, options(optimizer=name, weight_decay=0.5, learning_rate=0.1)).step()
        expected = before - before.sign() if left is None else left * before
        assert torch.allclose(layer.weight, expected, atol=1e-4), name


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("adamw", {"beta": 0.9}, 'options.beta: torch.optim.AdamW has no such argument; did you mean "betas"?'),
        ("sgd", {"betas": [0.9, 0.99]}, "SGD has no such argument; allowed here: dampening, momentum, nesterov"),
        ("adamw", {"lr": 0.1}, "optimizer_options.lr: got 0.1, but set learning_rate instead"),
        ("adamw", {"weight_decay": 0.1}, "got 0.1, but set the option weight_decay of the training instead"),
        ("sgd", {"fused": True}, "optimizer_options.fused: got True, but it gives other bits"),
        ("adamw", {"betas": [0.9]}, "optimizer_options.betas: got [0.9]; write 2 numbers, for example [0.9, 0.999]"),
        ("adamw", {"betas": 0.9}, "optimizer_options.betas: got 0.9; write 2 numbers"),
        ("adamw", {"amsgrad": "yes"}, "optimizer_options.amsgrad: got 'yes'; write true or false"),
        ("sgd", {"momentum": True}, "optimizer_options.momentum: got True; write a number"),
        ("rmsprop", {"eps": float("nan")}, "optimizer_options.eps: got nan; write a number"),
        ("adamw", {"betas": [1.5, 0.9]}, "torch.optim.AdamW refuses betas=[1.5, 0.9]: Invalid beta parameter"),
        ("sgd", {"momentum": 0}, "torch.optim.SGD refuses momentum=0, nesterov=True: Nesterov momentum requires a mom"),
    ],
)
def test_arguments_that_the_optimizer_does_not_take_are_refused_before_training(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    chosen, module = options(optimizer=name, optimizer_options=arguments), perceptron()
    with pytest.raises(ConfigError) as caught:
        fit(module, data_of(blobs, "vector", 3), [], chosen, seed=0, device="cpu", threads=1)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert same(module, perceptron())
