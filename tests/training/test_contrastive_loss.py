"""What an embedding is trained on: Khosla's formula against its parts, and a training that brings the like together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgekit.core.config import TrainOptions
from edgekit.data import load, parse
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training import contrastive_loss, losses
from edgekit.training.evaluate import evaluate
from edgekit.training.fit import fit
from edgekit.training.losses import Outputs, soft_targets

LABELS = torch.tensor([0, 1, 0, 2, 1, 0])


def vectors(seed: int, count: int = 6) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Equation 2, a sample at a time; one without a like is no anchor."""
    unit, found = functional.normalize(outputs, dim=1), []
    for anchor in range(len(unit)):
        others = [place for place in range(len(unit)) if place != anchor]
        like = [place for place in others if labels[place] == labels[anchor]]
        near = torch.stack([unit[anchor] @ unit[place] for place in others]) / contrastive_loss.TEMPERATURE
        shares = dict(zip(others, near.log_softmax(0), strict=True))
        if like:
            found.append(-sum(float(shares[place]) for place in like) / len(like))
    return sum(found) / len(found)


def test_it_is_the_formula() -> None:
    assert float(contrastive_loss.loss(vectors(0), LABELS)) == pytest.approx(by_hand(vectors(0), LABELS))
    assert losses.hard("embedding") is contrastive_loss.loss


def test_a_split_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(23) % 4
    whole = contrastive_loss.loss(vectors(1, 23), labels)
    monkeypatch.setattr(contrastive_loss, "ROWS", 5)
    assert torch.allclose(contrastive_loss.loss(vectors(1, 23), labels), whole)


def test_a_batch_without_two_of_a_label_teaches_nothing_and_breaks_nothing() -> None:
    outputs = vectors(2).requires_grad_()
    value = contrastive_loss.loss(outputs, torch.arange(6))
    value.backward()
    assert float(value) == 0 and outputs.grad is not None and not outputs.grad.any()


def test_the_distance_to_a_teacher_is_that_of_directions() -> None:
    student, teacher = vectors(0), vectors(1)
    expected = (1 - functional.cosine_similarity(student, teacher)).mean()
    options = soft_targets.Options(alpha=1.0)
    found = soft_targets.loss(Outputs(student * 3), Outputs(teacher / 7), LABELS, options, "embedding")
    assert torch.allclose(found, expected)
    assert float(contrastive_loss.distance(student, student)) == pytest.approx(0, abs=1e-12)


def test_a_network_learns_which_samples_are_alike() -> None:
    data = load(parse({"source": "digits", "limit": 400, "calibration_samples": 20, "task": "embedding"}))
    scale = [{"step": "scale", "factor": 1 / 255}]
    kwargs = {"width": 8, "dimensions": 16}
    network = store.build(spec_for(data, "edgekit.models.resnet:resnet8", kwargs, scale), seed=0)
    before = evaluate(network, data.validation, scale, "embedding")
    with torch.no_grad():
        assert network(torch.zeros(1, *data.raw_shape[2:], *data.raw_shape[:2])).shape == (1, 16)
    options = TrainOptions(epochs=4, batch_size=32, learning_rate=0.05)
    fit(network, data, scale, options, seed=0, device="cpu", threads=1)
    after = evaluate(network, data.validation, scale, "embedding")
    assert after > max(0.85, before), (before, after)
    assert np.isfinite(after)
