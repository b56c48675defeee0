"""Training that starts from trained weights: a slower backbone, and one that is frozen in the first epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edgekit.core.config import TrainingOptions, validate
from edgekit.core.errors import ConfigError
from edgekit.core.pretrained import Pretrained
from edgekit.data import Data
from edgekit.models.pretrained import backbone_names, load_backbone
from edgekit.training.checkpoint import Checkpoint
from tests.training.test_fit import bars, convolutions, data_of, options, same, train


@pytest.fixture
def images() -> Data:
    return data_of(bars, "image", 2)


@pytest.fixture
def weights(tmp_path: Path, images: Data) -> Path:
    """A file with the weights of a network that was trained on the same kind of pictures."""
    module = convolutions(seed=3)
    train(module, images)
    torch.save(module.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def section(weights: Path, **values: Any) -> Pretrained:
    pretrained: Pretrained = validate(Pretrained, {"file": str(weights), **values}, "model.pretrained")
    return pretrained


def started(pretrained: Pretrained) -> nn.Module:
    module = convolutions(seed=1)
    load_backbone(module, pretrained)
    return module


def backbone(module: nn.Module) -> dict[str, Tensor]:
    return {name: each.clone() for name, each in module.state_dict().items() if name in backbone_names(module)}


def changed(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    return {name for name, each in backbone(module).items() if not torch.equal(each, before[name])}


def test_a_frozen_backbone_keeps_its_weights_and_statistics_until_the_epoch_in_which_it_thaws(images, weights) -> None:
    pretrained = section(weights, freeze_epochs=2)
    module = started(pretrained)
    before, head, changes = backbone(module), module[-1].weight.clone(), []

    def remember(network: nn.Module) -> None:
        changes.append(changed(before, network))

    train(module, images, pretrained=pretrained, options=options(4), after_step=remember)
    steps = len(changes) // 4
    assert not any(changes[: 2 * steps])
    assert {"0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"} <= changes[-1]
    assert not torch.equal(module[-1].weight, head)
    assert all(each.requires_grad for each in module.parameters())


def test_norms_keep_their_statistics_if_asked(images, weights) -> None:
    pretrained = section(weights, freeze_norms=True)
    module = started(pretrained)
    before = backbone(module)
    train(module, images, pretrained=pretrained, options=options(2, learning_rate=0.01))
    assert not changed(before, module) & {"1.running_mean", "1.running_var"}
    assert "0.weight" in changed(before, module)


def test_the_backbone_learns_more_slowly_than_the_head(images, weights) -> None:
    steps = {}
    for rate in (0.01, 1.0):
        pretrained = section(weights, backbone_rate=rate)
        module = started(pretrained)
        before = module[0].weight.detach().clone()
        history = train(module, images, pretrained=pretrained, options=options(1, weight_decay=0.0))
        steps[rate] = float((module[0].weight.detach() - before).norm())
        assert history.epochs[0].learning_rate == pytest.approx(0.1, rel=0.9)
    assert steps[0.01] < 0.05 * steps[1.0]


def test_an_interrupted_training_ends_with_the_same_weights(images, weights, tmp_path) -> None:
    pretrained = section(weights, freeze_epochs=2)
    whole, parts = started(pretrained), started(pretrained)
    train(whole, images, pretrained=pretrained, options=options(5))
    for stop in (1, 3, 5):  # within the frozen epochs, after them, and at the end
        parts = started(pretrained)
        resume = Checkpoint(tmp_path / "training.safetensors", "key")
        train(parts, images, pretrained=pretrained, options=options(5), resume=resume, stop_epoch=stop)
    assert same(whole, parts)


def test_a_frozen_backbone_needs_one_process(images, weights) -> None:
    shares = TrainingOptions.model_validate({"shares": 2})
    pretrained = section(weights, freeze_epochs=1)
    with pytest.raises(ConfigError, match="pretrained and training.shares disagree"):
        train(started(pretrained), images, pretrained=pretrained, training=shares)
