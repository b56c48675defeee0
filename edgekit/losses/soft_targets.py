"""Soft targets: Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def loss(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, temperature: float = 4.0, alpha: float = 0.9
) -> Tensor:
    """alpha * T^2 * KL(teacher || student, both softened by T) + (1 - alpha) * cross entropy; mean over the batch.

    Logits are (N, classes), labels (N,) int64. T^2 keeps the soft part's gradient at the scale of the hard part's.
    """
    hard = functional.cross_entropy(student_logits, labels)
    soft = functional.kl_div(
        functional.log_softmax(student_logits / temperature, dim=1),
        functional.log_softmax(teacher_logits / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )
    return alpha * temperature**2 * soft + (1 - alpha) * hard
