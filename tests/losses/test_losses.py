"""Contract of every distillation loss in edgekit/losses, and Hinton's formula against its parts."""

import importlib
import pkgutil

import pytest
import torch
from torch.nn import functional

import edgekit.losses
from edgekit.losses import soft_targets

LOSSES = [module.name for module in pkgutil.iter_modules(edgekit.losses.__path__)]


def logits(seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.mark.parametrize("name", LOSSES)
class TestContract:
    def compute(self, name, student, teacher, temperature=4.0, alpha=0.9):
        return importlib.import_module(f"edgekit.losses.{name}").loss(student, teacher, LABELS, temperature, alpha)

    def test_is_a_finite_scalar_even_for_wild_logits(self, name):
        value = self.compute(name, logits(0, 1e4), logits(1, 1e4))
        assert value.shape == ()
        assert torch.isfinite(value)

    def test_teaches_the_student_and_not_the_teacher(self, name):
        student, teacher = logits(0).requires_grad_(), logits(1)
        self.compute(name, student, teacher).backward()
        assert student.grad.abs().sum() > 0
        assert not teacher.requires_grad

    def test_gets_smaller_towards_the_teacher(self, name):
        student, teacher = logits(0), logits(1)
        far, near = (self.compute(name, student.lerp(teacher, step), teacher, alpha=1.0) for step in (0.0, 0.9))
        assert near < far

    def test_without_soft_part_is_cross_entropy(self, name):
        value = self.compute(name, logits(0), logits(1), alpha=0.0)
        assert torch.allclose(value, functional.cross_entropy(logits(0), LABELS))


def test_equal_logits_leave_the_hard_part_alone():
    value = soft_targets.loss(logits(0), logits(0), LABELS, temperature=3.0, alpha=0.7)
    assert torch.allclose(value, 0.3 * functional.cross_entropy(logits(0), LABELS))


def test_soft_part_is_the_divergence_from_the_teacher_times_temperature_squared():
    temperature = 2.5
    taught = (logits(1) / temperature).softmax(1)
    learnt = (logits(0) / temperature).softmax(1)
    divergence = (taught * (taught / learnt).log()).sum(1).mean()
    value = soft_targets.loss(logits(0), logits(1), LABELS, temperature, alpha=1.0)
    assert torch.allclose(value, temperature**2 * divergence)
