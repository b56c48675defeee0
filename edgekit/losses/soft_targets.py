"""Soft targets: Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.losses import LossOptions, Outputs

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_FEATURES = False


class Options(LossOptions):
    """How soft the targets are, and how much they count."""

    loss: Literal["soft_targets"] = "soft_targets"
    temperature: float = Field(4.0, ge=0.1, le=100, description="softens teacher and student alike")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")


def loss(student: Outputs, teacher: Outputs, labels: Tensor, options: Options) -> Tensor:
    """See `mixed`."""
    return mixed(student.logits, teacher.logits, labels, options.temperature, options.alpha)


def mixed(student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, temperature: float, alpha: float) -> Tensor:
    """alpha * T^2 * KL(teacher || student, both softened by T) + (1 - alpha) * cross entropy; mean over the batch.

    Logits are (N, classes), labels (N,) int64. T^2 keeps the soft part's gradient at the scale of the hard part's.
    """
    from torch.nn import functional

    hard = functional.cross_entropy(student_logits, labels)
    soft = functional.kl_div(
        functional.log_softmax(student_logits / temperature, dim=1),
        functional.log_softmax(teacher_logits / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return alpha * temperature**2 * soft + (1 - alpha) * hard
