"""DKD: Zhao, Cui, Song, Qiu, Liang, "Decoupled Knowledge Distillation", CVPR 2022.

It splits the divergence of soft targets into two terms: how confident the teacher is of the correct class, and how it
ranks the other classes. The authors raise the weight of the distillation from 0 during the first 20 of 240 epochs. This
is left out here, because a loss does not know the epoch, and the training loop warms up the learning rate instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.training.losses import LossOptions, Outputs

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_FEATURES = False
FOR_ALL_TASKS = False


class Options(LossOptions):
    """Weights of the two terms; cross entropy has a weight of 1. The authors use the defaults for CIFAR-100."""

    loss: Literal["dkd"] = "dkd"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(1.0, ge=0, le=100, description="weight of the term for the correct class against all others")
    beta: float = Field(8.0, ge=0, le=100, description="weight of the term for the other classes among themselves")


def loss(student: Outputs, teacher: Outputs, labels: Tensor, options: Options, label_smoothing: float = 0.0) -> Tensor:
    """Return cross entropy + T^2 * (alpha * TCKD + beta * NCKD), averaged over the batch (section 3.2 of the paper).

    Labels are classes (N,), or soft labels (N, classes) of mixed samples. TCKD compares (p, 1 - p), where p is the
    probability of the labelled class; NCKD compares how the other classes share 1 - p. For NCKD, the logit of the
    labelled class is left out instead of being masked with a large number, so that extreme logits and their gradients
    stay finite.
    """
    from torch.nn import functional

    decouple = _decoupled_soft_labels if labels.is_floating_point() else _decoupled_loss
    decoupled = decouple(student.logits / options.temperature, teacher.logits / options.temperature, labels, options)
    cross_entropy = functional.cross_entropy(student.logits, labels, label_smoothing=label_smoothing)
    return cross_entropy + options.temperature**2 * decoupled


def _decoupled_loss(
    student: Tensor, teacher: Tensor, labels: Tensor, options: Options, reduction: str = "batchmean"
) -> Tensor:
    """Return alpha * TCKD + beta * NCKD of softened logits; with a reduction of "none", one value per sample (N,)."""
    (student_target, student_others), (teacher_target, teacher_others) = (
        _split_logits(student, labels),
        _split_logits(teacher, labels),
    )
    target_term = _divergence(student_target, teacher_target, reduction)
    others_term = _divergence(student_others, teacher_others, reduction)
    return options.alpha * target_term + options.beta * others_term


def _decoupled_soft_labels(student: Tensor, teacher: Tensor, labels: Tensor, options: Options) -> Tensor:
    """Return `_decoupled_loss` for soft labels (N, classes): each label of a sample counts with its share."""
    import torch

    shares, classes = labels.topk(int((labels > 0).sum(1).max()), dim=1)
    parts = [_decoupled_loss(student, teacher, label, options, "none") for label in classes.unbind(1)]
    return (shares * torch.stack(parts, dim=1)).sum(dim=1).mean()


def _split_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (label, all others combined), (N, 2), and those of each other class, (N, classes - 1)."""
    import torch

    label = labels.unsqueeze(1)
    others = torch.arange(logits.shape[1] - 1, device=logits.device).expand(len(logits), -1)
    others = logits.gather(1, others + (others >= label))
    return torch.cat((logits.gather(1, label), others.logsumexp(1, keepdim=True)), dim=1), others


def _divergence(student: Tensor, teacher: Tensor, reduction: str = "batchmean") -> Tensor:
    """Return KL(teacher || student) of two sets of logits: the mean over the batch, or (N,) with "none"."""
    from torch.nn import functional

    divergence = functional.kl_div(
        functional.log_softmax(student, dim=1),
        functional.log_softmax(teacher, dim=1),
        reduction=reduction,
        log_target=True,
    )
    return divergence.sum(dim=1) if reduction == "none" else divergence
