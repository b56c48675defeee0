"""DKD: Zhao, Cui, Song, Qiu, Liang, "Decoupled Knowledge Distillation", CVPR 2022.

The divergence of soft targets taken apart: how sure the teacher is of the right class, and how it ranks the others. The
authors raise the distillation's weight from 0 over the first 20 of 240 epochs. That is left out here, for a loss does
not know the epoch, and the training loop warms up the learning rate.
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
    """Weights of the two parts beside cross entropy's 1; the defaults are the authors' for CIFAR-100."""

    loss: Literal["dkd"] = "dkd"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(1.0, ge=0, le=100, description="weight of the term for the correct class against all others")
    beta: float = Field(8.0, ge=0, le=100, description="weight of the term for the other classes among themselves")


def loss(student: Outputs, teacher: Outputs, labels: Tensor, options: Options) -> Tensor:
    """Cross entropy + T^2 * (alpha * TCKD + beta * NCKD), the paper's section 3.2; mean over the batch.

    Labels are classes (N,), or the shares (N, classes) of mixed samples. TCKD compares (p, 1 - p) of the label's class,
    NCKD the other classes' shares of 1 - p. Nothing is masked by a large number: the label's logit is left out, so wild
    logits stay finite, and so do their gradients.
    """
    from torch.nn import functional

    decouple = _of_mixed if labels.is_floating_point() else _decoupled
    decoupled = decouple(student.logits / options.temperature, teacher.logits / options.temperature, labels, options)
    return functional.cross_entropy(student.logits, labels) + options.temperature**2 * decoupled


def _decoupled(student: Tensor, teacher: Tensor, labels: Tensor, options: Options, each: str = "batchmean") -> Tensor:
    """alpha * TCKD + beta * NCKD of softened logits; `each` "none": of every sample, (N,)."""
    (target_s, others_s), (target_t, others_t) = _apart(student, labels), _apart(teacher, labels)
    parts = _divergence(target_s, target_t, each), _divergence(others_s, others_t, each)
    return options.alpha * parts[0] + options.beta * parts[1]


def _of_mixed(student: Tensor, teacher: Tensor, labels: Tensor, options: Options) -> Tensor:
    """The same of samples with several labels: the mean over each one's labels (N, classes), by their shares."""
    import torch

    shares, classes = labels.topk(int((labels > 0).sum(1).max()), dim=1)
    parts = [_decoupled(student, teacher, label, options, "none") for label in classes.unbind(1)]
    return (shares * torch.stack(parts, dim=1)).sum(dim=1).mean()


def _apart(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of (label, all others together), (N, 2), and of the others one by one, (N, classes - 1)."""
    import torch

    label = labels.unsqueeze(1)
    others = torch.arange(logits.shape[1] - 1, device=logits.device).expand(len(logits), -1)
    others = logits.gather(1, others + (others >= label))
    return torch.cat((logits.gather(1, label), others.logsumexp(1, keepdim=True)), dim=1), others


def _divergence(student: Tensor, teacher: Tensor, each: str = "batchmean") -> Tensor:
    """KL(teacher || student) of two sets of logits, mean over the batch; `each` "none": of every sample, (N,)."""
    from torch.nn import functional

    found = functional.kl_div(
        functional.log_softmax(student, dim=1), functional.log_softmax(teacher, dim=1), reduction=each, log_target=True
    )
    return found.sum(dim=1) if each == "none" else found
