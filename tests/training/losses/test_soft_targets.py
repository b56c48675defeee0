"""Hinton's formula against its parts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from edgekit.training.losses import Outputs, soft_targets

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def logits(seed: int) -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compute(student: Tensor, teacher: Tensor, **options: float) -> Tensor:
    return soft_targets.loss(Outputs(student), Outputs(teacher), LABELS, soft_targets.Options(**options))


def test_without_soft_part_is_cross_entropy() -> None:
    assert torch.allclose(compute(logits(0), logits(1), alpha=0.0), functional.cross_entropy(logits(0), LABELS))


def test_equal_logits_leave_the_hard_part_alone() -> None:
    value = compute(logits(0), logits(0), temperature=3.0, alpha=0.7)
    assert torch.allclose(value, 0.3 * functional.cross_entropy(logits(0), LABELS))


def test_soft_part_is_the_divergence_from_the_teacher_times_temperature_squared() -> None:
    temperature = 2.5
    taught = (logits(1) / temperature).softmax(1)
    learnt = (logits(0) / temperature).softmax(1)
    divergence = (taught * (taught / learnt).log()).sum(1).mean()
    assert torch.allclose(
        compute(logits(0), logits(1), temperature=temperature, alpha=1.0), temperature**2 * divergence
    )


def test_in_float32_the_bits_are_those_of_the_formula_in_this_order() -> None:
    """Another order of the same sum would change every artifact that training left so far."""
    student, teacher = logits(0).float(), logits(1).float()
    soft = functional.kl_div(
        (student / 4.0).log_softmax(1), (teacher / 4.0).log_softmax(1), reduction="batchmean", log_target=True
    )
    expected = 0.9 * 4.0**2 * soft + (1 - 0.9) * functional.cross_entropy(student, LABELS)
    assert torch.equal(compute(student, teacher), expected)
