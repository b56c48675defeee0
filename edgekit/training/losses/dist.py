"""DIST: Huang, You, Wang, Qian, Xu, "Knowledge Distillation from A Stronger Teacher", NeurIPS 2022.

The probabilities of the student need not equal those of the teacher, but only correlate with them: over the classes of
each sample, and over the samples of a batch for each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.training.losses import LossOptions, Outputs

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_FEATURES = False
FOR_ALL_TASKS = False
CONSTANT_TOLERANCE = 1e-6
"""A vector counts as constant if the norm of its deviations from the mean is at most this share of its own norm.

Smaller deviations are rounding errors of float32.
"""


class Options(LossOptions):
    """Weights of the two terms; cross entropy has a weight of 1. The authors use the defaults for CIFAR-100."""

    loss: Literal["dist"] = "dist"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    beta: float = Field(2.0, ge=0, le=100, description="weight of the agreement over the classes of each sample")
    gamma: float = Field(2.0, ge=0, le=100, description="weight of the agreement over the batch for each class")


def loss(student: Outputs, teacher: Outputs, labels: Tensor, options: Options, label_smoothing: float = 0.0) -> Tensor:
    """Return cross entropy + T^2 * (beta * inter + gamma * intra), as in section 3 of the paper.

    The factor T^2 is from the authors' code. Both terms are mean Pearson distances (0 to 2) of the probabilities
    softened by T: inter compares the rows, intra the columns.
    """
    from torch.nn import functional

    student_probs = functional.softmax(student.logits / options.temperature, dim=1)
    teacher_probs = functional.softmax(teacher.logits / options.temperature, dim=1)
    inter = _pearson_distance(student_probs, teacher_probs, dim=1)
    intra = _pearson_distance(student_probs, teacher_probs, dim=0)
    relations = options.beta * inter + options.gamma * intra
    cross_entropy = functional.cross_entropy(student.logits, labels, label_smoothing=label_smoothing)
    return cross_entropy + options.temperature**2 * relations


def _pearson_distance(student: Tensor, teacher: Tensor, dim: int) -> Tensor:
    """Return the mean of 1 - Pearson's correlation along `dim`.

    It is 1, without a gradient, where one of the two vectors is constant, because the gradient of the rounding errors
    would be a million times too large.
    """
    from torch.nn import functional

    student_deviations, teacher_deviations = (y - y.mean(dim, keepdim=True) for y in (student, teacher))
    is_constant = _is_constant(student, student_deviations, dim) | _is_constant(teacher, teacher_deviations, dim)
    similarities = functional.cosine_similarity(student_deviations, teacher_deviations, dim=dim)
    return 1 - similarities.masked_fill(is_constant, 0.0).mean()


def _is_constant(y: Tensor, deviations: Tensor, dim: int) -> Tensor:
    return deviations.detach().norm(dim=dim) <= CONSTANT_TOLERANCE * y.detach().norm(dim=dim)
