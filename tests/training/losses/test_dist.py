"""DIST against numpy's own correlations, and what it must not see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgekit.training.losses import Outputs, dist

LABELS = np.array([0, 1, 2, 3, 4, 0, 1])


def logits(seed: int) -> np.ndarray:
    return 3 * np.random.default_rng(seed).standard_normal((7, 5))


def compute(student: np.ndarray, teacher: np.ndarray, **options: float) -> float:
    """The loss less its cross entropy."""
    learnt, labels = torch.from_numpy(student), torch.from_numpy(LABELS)
    value = dist.loss(Outputs(learnt), Outputs(torch.from_numpy(teacher)), labels, dist.Options(**options))
    return float(value - functional.cross_entropy(learnt, labels))


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)


@pytest.mark.parametrize(("temperature", "beta", "gamma"), [(4.0, 2.0, 2.0), (1.0, 1.0, 0.0), (2.5, 0.0, 3.0)])
def test_is_the_papers_formula(temperature: float, beta: float, gamma: float) -> None:
    learnt, taught = softmax(logits(0) / temperature), softmax(logits(1) / temperature)
    inter = np.mean([1 - np.corrcoef(learnt[i], taught[i])[0, 1] for i in range(7)])
    intra = np.mean([1 - np.corrcoef(learnt[:, j], taught[:, j])[0, 1] for j in range(5)])
    got = compute(logits(0), logits(1), temperature=temperature, beta=beta, gamma=gamma)
    assert got == pytest.approx(temperature**2 * (beta * inter + gamma * intra), rel=1e-9)


def test_the_defaults_are_the_authors() -> None:
    assert compute(logits(0), logits(1)) == compute(logits(0), logits(1), temperature=4.0, beta=2.0, gamma=2.0)


def test_probabilities_that_rise_and_fall_with_the_teachers_are_right() -> None:
    """The teacher's probabilities mixed with equal ones are another distribution, with the same relations."""
    mixed = 4.0 * np.log(0.3 * softmax(logits(1) / 4.0) + 0.7 / 5)
    assert compute(mixed, logits(1)) == pytest.approx(0, abs=1e-9)
    assert np.abs(softmax(mixed / 4.0) - softmax(logits(1) / 4.0)).max() > 0.1


def test_a_shift_of_all_logits_of_a_sample_is_not_seen() -> None:
    shifted = logits(0) + np.arange(7)[:, np.newaxis]
    assert compute(shifted, logits(1)) == pytest.approx(compute(logits(0), logits(1)), rel=1e-9)


def test_opposite_probabilities_are_twice_as_far_as_unrelated_ones() -> None:
    teacher = logits(1)
    opposite = 4.0 * np.log(0.4 - 0.3 * softmax(teacher / 4.0))  # falls where the teacher's rise; normalised below
    rows = compute(opposite, teacher, beta=1.0, gamma=0.0)
    assert rows == pytest.approx(16 * 2, rel=1e-9)
    assert compute(np.zeros((7, 5)), teacher, beta=1.0, gamma=0.0) == pytest.approx(16 * 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_student_that_says_the_same_of_everything_gets_a_gradient_of_cross_entropys_size(dtype: torch.dtype) -> None:
    """A last layer that starts at zero, or at a bias alone: no correlation to turn, and no division by rounding."""
    teacher, labels = torch.from_numpy(logits(1)).to(dtype), torch.from_numpy(LABELS)
    for row in (torch.zeros(5), torch.linspace(-1, 1, 5)):
        student = row.to(dtype).repeat(7, 1).requires_grad_()
        dist.loss(Outputs(student), Outputs(teacher), labels, dist.Options()).backward()
        assert 0 < student.grad.abs().max() < 10  # type: ignore[union-attr]
