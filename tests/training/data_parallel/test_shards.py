"""Training by shares in one process: what a share is, and that the sum of shares is a batch's gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.errors import ConfigError
from edgekit.models.resnet import resnet8
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.data_parallel.division import shard_owners, shard_slices, threads_per_shard
from edgekit.training.fit import History, fit
from edgekit.training.losses import hints, soft_targets
from edgekit.training.objective import Distillation
from tests.training.test_checkpoint import Stopped, stop_after
from tests.training.test_fit import SCALE, bars, blobs, data_of, options, perceptron, same


@pytest.fixture
def vectors():
    return data_of(blobs, "vector", 3)


@pytest.fixture
def images():
    return data_of(bars, "image", 2)


def residual(width: int = 4, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return resnet8(input_shape=(1, 8, 8), num_classes=2, width=width)


def trained(module: nn.Module, data, shares: int, preprocess=(), chosen: TrainOptions | None = None, **rest) -> History:
    """With as many threads as shares, so one each."""
    how = {"seed": 1, "device": "cpu", "threads": shares, "training": TrainingOptions(shares=shares), **rest}
    return fit(module, data, list(preprocess), chosen or options(3), **how)


@pytest.mark.parametrize("samples", [1, 2, 3, 7, 16, 17, 64])
@pytest.mark.parametrize("shares", [1, 2, 3, 4, 8])
def test_shares_are_the_whole_batch_in_its_order(samples: int, shares: int) -> None:
    parts = shard_slices(samples, shares)
    assert [place for part in parts for place in range(samples)[part]] == list(range(samples))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == shares or min(sizes) in (1, 2, 3)
    assert samples < 2 or min(sizes) >= 2


def test_every_process_has_neighbouring_shares_and_the_first_has_share_0() -> None:
    found = {processes: shard_owners(4, processes) for processes in (1, 2, 3, 4, 9)}
    assert found == {1: [0, 0, 0, 0], 2: [0, 0, 1, 1], 3: [0, 0, 1, 2], 4: [0, 1, 2, 3], 9: [0, 1, 2, 3]}


def test_the_threads_of_a_share_follow_from_the_key() -> None:
    assert [threads_per_shard(8, shares) for shares in (1, 2, 4, 16)] == [8, 4, 2, 1]


def test_one_share_is_the_training_as_it_was(images) -> None:
    """The option's default and its absence give one and the same."""
    first, second = residual(), residual()
    history = trained(first, images, 1, SCALE)
    assert fit(second, images, SCALE, options(3), seed=1, device="cpu", threads=1) == history
    assert same(first, second)


def test_without_statistics_of_a_batch_shares_are_its_gradient(vectors) -> None:
    """97 samples in batches of 16, and shares of 5 and 6: the mean of a batch is no mean of its shares' means."""

    def plain() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    whole, shared = plain(), plain()
    expected, found = trained(whole, vectors, 1), trained(shared, vectors, 3)
    assert [each.train_loss for each in found.epochs] == pytest.approx([each.train_loss for each in expected.epochs])
    for one, other in zip(whole.state_dict().values(), shared.state_dict().values(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_running_statistics_are_those_of_share_0(vectors) -> None:
    """One batch, one epoch, a rate that leaves the weights in place: share 0 are the first 24 samples of the order."""
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    chosen = options(1, batch_size=97, learning_rate=1e-12)
    trained(module, vectors, 4, chosen=chosen, threads=1)
    order = np.random.default_rng(1).permutation(97)
    mean = torch.from_numpy(vectors.train.x[order[:24]]).mean(dim=0)
    assert torch.allclose(module[0].running_mean, 0.1 * mean, atol=1e-6)
    assert int(module[0].num_batches_tracked) == 1


def test_shares_with_dropout_and_augmentation_repeat_themselves(images, vectors) -> None:
    for make, data, steps in ((perceptron, vectors, ()), (residual, images, SCALE)):
        chosen = options(2, augment="shift_flip" if data is images else "none")
        networks = [make(), make()]
        histories = [trained(network, data, 4, steps, chosen) for network in networks]
        assert histories[0] == histories[1] and same(*networks)


@pytest.mark.parametrize("lesson", [soft_targets.Options(), hints.Options()], ids=lambda each: each.loss)
def test_a_teachers_cached_answers_are_those_it_gave(images, tmp_path, lesson) -> None:
    chosen, teacher = options(2, augment="shift_flip"), residual(8, 1)
    networks = [residual(), residual(), residual()]
    for network, folder in zip(networks, ("answers", "answers", "others"), strict=True):
        trained(network, images, 4, SCALE, chosen, distillation=Distillation(teacher, lesson, tmp_path / folder))
    assert same(*networks[:2]) and same(*networks[1:])
    if lesson.loss == "soft_targets":  # a training with one share must not get these answers
        trained(residual(), images, 1, SCALE, chosen, distillation=Distillation(teacher, lesson, tmp_path / "answers"))
        assert len(list((tmp_path / "answers").iterdir())) == 2


def test_a_stopped_training_by_shares_goes_on_to_the_same_bits(vectors, tmp_path) -> None:
    whole, halves = perceptron(), perceptron()
    expected = trained(whole, vectors, 4, chosen=options(4))
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    with pytest.raises(Stopped):
        trained(halves, vectors, 4, chosen=options(4), resume=place, on_epoch=stop_after(2))
    again = perceptron(seed=9)
    assert trained(again, vectors, 4, chosen=options(4), resume=place) == expected
    assert same(again, whole)


def test_early_stopping_and_what_runs_after_a_step_go_with_shares(vectors) -> None:
    module, calls = perceptron(), []
    chosen = options(200, patience_epochs=3, learning_rate=1e-9)
    history = trained(module, vectors, 2, chosen=chosen, after_step=calls.append)
    assert len(history.epochs) - history.best.epoch == 3
    assert len(calls) == 6 * len(history.epochs)


def test_an_embeddings_share_must_hold_pairs_of_a_label() -> None:
    data = data_of(lambda count, seed: blobs(count, seed), "vector", 3)
    object.__setattr__(data, "task", "embedding")
    with pytest.raises(
        ConfigError, match=r"^training.shares: got 8, and an embedding compares only the samples within a shard\. batch"
    ):
        trained(perceptron(), data, 8, chosen=options(1))
