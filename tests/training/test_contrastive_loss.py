"""What an embedding is trained on: Khosla's formula against its parts, and a training that brings the like together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgekit.core.config import TrainOptions
from edgekit.core.errors import ConfigError
from edgekit.data import Data, load, parse
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training import losses, positives, task_losses
from edgekit.training.fit import fit
from edgekit.training.losses import Outputs, soft_targets
from edgekit.training.predict import evaluate

LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


def vectors(seed: int, count: int = 6) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Equation 2, a sample at a time; one without a like is no anchor."""
    unit, found = functional.normalize(outputs, dim=1), []
    for anchor in range(len(unit)):
        others = [place for place in range(len(unit)) if place != anchor]
        like = [place for place in others if labels[place] == labels[anchor]]
        near = torch.stack([unit[anchor] @ unit[place] for place in others]) / task_losses.CONTRASTIVE_TEMPERATURE
        shares = dict(zip(others, near.log_softmax(0), strict=True))
        if like:
            found.append(-sum(float(shares[place]) for place in like) / len(like))
    return sum(found) / len(found)


def test_it_is_the_formula() -> None:
    assert float(task_losses.contrastive_loss(vectors(0), LABELS)) == pytest.approx(by_hand(vectors(0), LABELS))
    assert losses.label_loss("embedding") is task_losses.contrastive_loss


def test_a_split_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(23) % 4
    whole = task_losses.contrastive_loss(vectors(1, 23), labels)
    monkeypatch.setattr(task_losses, "CONTRASTIVE_ROWS", 5)
    assert torch.allclose(task_losses.contrastive_loss(vectors(1, 23), labels), whole)


def test_a_batch_without_two_of_a_label_teaches_nothing_and_breaks_nothing() -> None:
    outputs = vectors(2).requires_grad_()
    value = task_losses.contrastive_loss(outputs, torch.arange(6))
    value.backward()
    assert float(value.detach()) == 0 and outputs.grad is not None and not outputs.grad.any()


def test_a_batch_holds_as_many_pairs_of_a_label_as_are_counted() -> None:
    """Against batches that are drawn."""
    labels, random = np.repeat(np.arange(40), 3), np.random.default_rng(0)
    drawn = [np.unique(labels[random.permutation(120)[:16]], return_counts=True)[1] for _ in range(4000)]
    assert np.mean([(each * (each - 1) / 2).sum() for each in drawn]) == pytest.approx(2.017, rel=0.05)
    assert positives.expected_pairs(labels, 16) == pytest.approx(120 * 2 / 119)
    assert positives.expected_pairs(labels, 500) == pytest.approx(120)  # all three pairs of each
    needed = positives.min_batch_size(labels)
    assert positives.expected_pairs(labels, needed - 1) < 1 <= positives.expected_pairs(labels, needed)
    assert positives.min_batch_size(np.array([*range(50), 0])) == 51, (
        "the two that are alike are in one batch if all are"
    )


def identities(folder: Path, count: int = 300, each: int = 4) -> Data:
    """Vectors of many identities, a few of each, and some more to validate."""
    random, y = np.random.default_rng(0), np.repeat(np.arange(count), each)
    found = {"x_train": random.normal(size=(len(y), 8)).astype(np.float32), "y_train": y}
    for split in ("validation", "test"):
        found |= {f"x_{split}": random.normal(size=(40, 8)).astype(np.float32), f"y_{split}": np.arange(40) % 20}
    np.savez(folder / "x.npz", **found)
    return load(parse({"source": "npz", "path": str(folder / "x.npz"), "calibration_samples": 20, "task": "embedding"}))


def test_batches_that_would_teach_nothing_are_refused_before_the_training(tmp_path: Path) -> None:
    data = identities(tmp_path)
    network = store.build(spec_for(data, "edgekit.models.mlp:mlp", {"width": 8, "dimensions": 4}, []), seed=0)
    needed = positives.min_batch_size(data.train.y)
    words = rf"^batch_size: got 8; .* contains 0\.\d+ such pairs on average; use {needed} or more, or add samples"
    with pytest.raises(ConfigError, match=words):
        fit(network, data, [], TrainOptions(epochs=1, batch_size=8), seed=0, device="cpu", threads=1)
    fit(network, data, [], TrainOptions(epochs=1, batch_size=needed), seed=0, device="cpu", threads=1)
    assert all(bool(torch.isfinite(each).all()) for each in network.parameters())


def test_the_distance_to_a_teacher_is_that_of_directions() -> None:
    student, teacher = vectors(0), vectors(1)
    expected = (1 - functional.cosine_similarity(student, teacher)).mean()
    options = soft_targets.Options(alpha=1.0)
    found = soft_targets.loss(Outputs(student * 3), Outputs(teacher / 7), LABELS, options, task="embedding")
    assert torch.allclose(found, expected)
    assert float(task_losses.embedding_distance(student, student)) == pytest.approx(0, abs=1e-12)


def test_a_network_learns_which_samples_are_alike(tmp_path: Path) -> None:
    """Four numbers of 24 decide the label; the others are noise that hides it from an untrained network."""
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 1200)
    x = np.hstack([2 * np.eye(4)[y] + 0.3 * random.normal(size=(1200, 4)), random.normal(size=(1200, 20))])
    np.savez(tmp_path / "x.npz", x_train=x.astype(np.float32), y_train=y)
    source = {"source": "npz", "path": str(tmp_path / "x.npz"), "calibration_samples": 20, "task": "embedding"}
    data = load(parse(source))
    network = store.build(spec_for(data, "edgekit.models.mlp:mlp", {"width": 32, "dimensions": 8}, []), seed=0)
    with torch.no_grad():
        assert network(torch.zeros(2, 24)).shape == (2, 8)
    before = evaluate(network, data.validation, [], "embedding")
    fit(network, data, [], TrainOptions(epochs=15, batch_size=64, learning_rate=0.05), seed=0, device="cpu", threads=1)
    after = evaluate(network, data.validation, [], "embedding")
    assert before < 0.8 < 0.95 < after, (before, after)
