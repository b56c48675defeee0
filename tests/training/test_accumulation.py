"""Gradients of several batches: their mean is the gradient of one large batch, and the schedule counts steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import History, fit
from tests.training.test_checkpoint import Stopped, stop_after
from tests.training.test_fit import blobs, data_of, options, perceptron, same


@pytest.fixture
def vectors():
    """Six batches of 16, the last one of 10."""
    return data_of(blobs, "vector", 3, train=90)


def plain() -> nn.Module:
    """Without dropout and batch norm, which depend on the batch."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def trained(module: nn.Module, data, epochs: int = 3, batches: int = 4, batch_size: int = 16, **rest) -> History:
    chosen = options(epochs, accumulate_batches=batches, batch_size=batch_size)
    return fit(module, data, [], chosen, seed=3, device="cpu", threads=1, **rest)


def test_four_batches_are_one_of_four_times_the_size(vectors) -> None:
    """The rest of an epoch has a batch of 16 and one of 10, which count by their samples."""
    parts, whole = plain(), plain()
    by_parts = trained(parts, vectors)
    by_whole = trained(whole, vectors, batches=1, batch_size=64)
    assert [each.learning_rate for each in by_parts.epochs] == [each.learning_rate for each in by_whole.epochs]
    for name, value in parts.state_dict().items():
        assert torch.allclose(value, whole.state_dict()[name], atol=1e-6), name


@pytest.mark.parametrize(("batches", "steps"), [(1, 6), (2, 3), (4, 2), (6, 1), (100, 1)])
def test_each_epoch_has_so_many_steps(vectors, batches: int, steps: int) -> None:
    seen: list[nn.Module] = []
    trained(plain(), vectors, 2, batches, after_step=seen.append)
    assert len(seen) == 2 * steps


def test_the_loss_is_the_mean_of_the_batches(vectors) -> None:
    """With a rate of almost zero, nothing depends on the steps."""
    losses = []
    for batches in (1, 4):
        chosen = options(1, accumulate_batches=batches, learning_rate=1e-12)
        losses.append(fit(plain(), vectors, [], chosen, seed=3, device="cpu", threads=1).epochs[0].train_loss)
    assert losses[0] == pytest.approx(losses[1])


def test_a_stopped_training_goes_on_to_the_same_bits(vectors, tmp_path: Path) -> None:
    whole, again = perceptron(), perceptron(9)
    expected = trained(whole, vectors, 4)
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    with pytest.raises(Stopped):
        trained(perceptron(), vectors, 4, resume=place, on_epoch=stop_after(2))
    assert trained(again, vectors, 4, resume=place) == expected
    assert same(again, whole)
