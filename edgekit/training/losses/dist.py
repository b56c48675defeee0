"""DIST: Huang, You, Wang, Qian, Xu, "Knowledge Distillation from A Stronger Teacher", NeurIPS 2022.

The student's probabilities need not equal the teacher's, only correlate with them: over the classes of a sample, and
over the samples of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.training.losses import LossOptions, Outputs

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_FEATURES = False
FOR_ALL_TASKS = False
FLAT = 1e-6
"""Norm of what deviates from the mean, as a share of the whole's: below it, it is float32's rounding."""


class Options(LossOptions):
    """Weights of the two parts beside cross entropy's 1; the defaults are the authors' for CIFAR-100."""

    loss: Literal["dist"] = "dist"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    beta: float = Field(2.0, ge=0, le=100, description="weight of the agreement over the classes of each sample")
    gamma: float = Field(2.0, ge=0, le=100, description="weight of the agreement over the batch for each class")


def loss(student: Outputs, teacher: Outputs, labels: Tensor, options: Options) -> Tensor:
    """Cross entropy + T^2 * (beta * inter + gamma * intra), the paper's section 3 with the T^2 of the authors' code.

    Both parts are mean Pearson distances (0 to 2) of probabilities softened by T: inter of rows, intra of columns.
    """
    from torch.nn import functional

    learnt = functional.softmax(student.logits / options.temperature, dim=1)
    taught = functional.softmax(teacher.logits / options.temperature, dim=1)
    relations = options.beta * _distance(learnt, taught, dim=1) + options.gamma * _distance(learnt, taught, dim=0)
    return functional.cross_entropy(student.logits, labels) + options.temperature**2 * relations


def _distance(student: Tensor, teacher: Tensor, dim: int) -> Tensor:
    """1 - Pearson's correlation along `dim`, averaged; 1 and without gradient where one of the two is constant.

    A constant has no direction to turn, and the gradient of its rounding would be a million times too large.
    """
    from torch.nn import functional

    learnt, taught = (y - y.mean(dim, keepdim=True) for y in (student, teacher))
    flat = _flat(student, learnt, dim) | _flat(teacher, taught, dim)
    return 1 - functional.cosine_similarity(learnt, taught, dim=dim).masked_fill(flat, 0.0).mean()


def _flat(y: Tensor, deviation: Tensor, dim: int) -> Tensor:
    return deviation.detach().norm(dim=dim) <= FLAT * y.detach().norm(dim=dim)
