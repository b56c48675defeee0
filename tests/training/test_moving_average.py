"""The moving average of a training's weights: its formula, and that it is what is validated, kept and gone on with."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.training.checkpoint import Checkpoint, MovingAverage
from edgekit.training.fit import History, fit
from edgekit.training.predict import evaluate
from tests.training.test_checkpoint import Stopped, stop_after
from tests.training.test_fit import blobs, data_of, options, perceptron, same


@pytest.fixture
def vectors():
    return data_of(blobs, "vector", 3)


def trained(module: nn.Module, data, decay: float = 0.9, epochs: int = 4, **rest) -> History:
    return fit(module, data, [], options(epochs, ema_decay=decay), seed=3, device="cpu", threads=1, **rest)


def test_it_is_the_mean_by_its_formula() -> None:
    layer = nn.BatchNorm1d(1)
    average = MovingAverage(layer, 0.5)
    expected = 1.0
    for step, value in enumerate((3.0, 5.0, -1.0), 1):
        with torch.no_grad():
            layer.weight.fill_(value)
            layer.running_mean.fill_(value)
            layer.num_batches_tracked.fill_(step)
        average.update(layer, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
        assert average.state["weight"].item() == pytest.approx(expected)
    assert average.state["num_batches_tracked"].item() == 3
    start = 0.0
    for step, value in enumerate((3.0, 5.0, -1.0), 1):
        decay = min(0.5, (1 + step) / (10 + step))
        start = decay * start + (1 - decay) * value
    assert average.state["running_mean"].item() == pytest.approx(start)


def test_inside_the_module_has_it_and_afterwards_its_own_bits() -> None:
    module = perceptron()
    average = MovingAverage(module, 0.9)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3)
    before = copy.deepcopy(module)
    average.update(module, 1)
    with average.inside(module):
        assert all(torch.equal(value, average.state[name]) for name, value in module.state_dict().items())
        assert not same(module, before)
    assert same(module, before)


def test_it_is_what_is_left_and_what_was_validated(vectors) -> None:
    """The weights that learn are those of a training without it: it only looks on."""
    alone, averaged = perceptron(), perceptron()
    plain = fit(alone, vectors, [], options(4), seed=3, device="cpu", threads=1)
    seen: list[dict[str, torch.Tensor]] = []
    history = trained(averaged, vectors, after_step=lambda module: seen.append(copy.deepcopy(module.state_dict())))
    assert [each.train_loss for each in history.epochs] == [each.train_loss for each in plain.epochs]
    assert not same(alone, averaged)
    assert evaluate(averaged, vectors.validation, []) == pytest.approx(history.best.validation_accuracy)


def test_its_batch_norm_knows_the_statistics_of_its_own_layer(vectors) -> None:
    module = perceptron()
    trained(module, vectors, decay=0.95, epochs=8)
    with torch.no_grad():
        maps = module[0](torch.from_numpy(vectors.train.x))
    assert torch.allclose(module[1].running_mean, maps.mean(0), atol=0.25 * float(maps.std()))
    assert torch.allclose(module[1].running_var, maps.var(0), rtol=0.3)


def test_zeros_that_are_put_back_after_each_step_stay_zeros(vectors) -> None:
    module = perceptron()

    def zero(each: nn.Module) -> None:
        with torch.no_grad():
            each[0].weight[:, 0] = 0  # type: ignore[index]

    trained(module, vectors, epochs=2, after_step=zero)
    assert (module[0].weight[:, 0] == 0).all()


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_stopped_training_goes_on_to_the_same_bits(vectors, tmp_path: Path, epoch: int) -> None:
    whole, again = perceptron(), perceptron(seed=9)
    expected = trained(whole, vectors)
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    with pytest.raises(Stopped):
        trained(perceptron(), vectors, resume=place, on_epoch=stop_after(epoch))
    assert trained(again, vectors, resume=place) == expected
    assert same(again, whole)


def test_of_noisy_steps_the_mean_is_nearer_to_the_optimum() -> None:
    """What it is for: Polyak and Juditsky's case, steps of one size around a minimum."""
    random = np.random.default_rng(0)
    layer = nn.Linear(1, 1, bias=False)
    average = MovingAverage(layer, 0.99)
    ends = []
    for step in range(1, 2001):
        with torch.no_grad():
            layer.weight -= 0.3 * (layer.weight - 2 + float(random.normal()))
        average.update(layer, step)
        ends.append(abs(layer.weight.item() - 2))
    assert abs(average.state["weight"].item() - 2) < np.mean(ends[-1000:]) / 2
