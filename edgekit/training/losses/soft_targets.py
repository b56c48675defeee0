"""Soft targets: Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.tasks import Task
from edgekit.training import losses
from edgekit.training.losses import LossOptions, Outputs

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_FEATURES = False
FOR_ALL_TASKS = True


class Options(LossOptions):
    """Options of soft targets."""

    loss: Literal["soft_targets"] = "soft_targets"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")


def loss(
    student: Outputs,
    teacher: Outputs,
    labels: Tensor,
    options: Options,
    task: Task = "classification",
    label_smoothing: float = 0.0,
) -> Tensor:
    """See `combined_loss`."""
    return combined_loss(
        student.logits, teacher.logits, labels, options.temperature, options.alpha, task, label_smoothing
    )


def combined_loss(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    temperature: float,
    alpha: float,
    task: Task = "classification",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return alpha * the distance to the teacher's outputs + (1 - alpha) * `losses.label_loss`.

    For logits (N, classes) the distance is T^2 * KL(teacher || student), with both softened by T. The factor T^2 keeps
    the gradient of this term at the scale of the other term. The same distance is computed for each label if there are
    several, and for each cell of a mask. For values and reconstructions it is the squared error, and for embeddings
    1 - cosine, in both cases without T. For boxes see `task_losses.detection_distance`.
    """
    hard_loss = losses.label_loss(task, label_smoothing)(student, labels)
    return alpha * _distance(student, teacher, temperature, task) + (1 - alpha) * hard_loss


def _distance(student: Tensor, teacher: Tensor, temperature: float, task: Task) -> Tensor:
    from torch.nn import functional

    from edgekit.training import task_losses

    if task == "classification":
        student_logs, teacher_logs = (functional.log_softmax(each / temperature, dim=1) for each in (student, teacher))
        return temperature**2 * functional.kl_div(student_logs, teacher_logs, reduction="batchmean", log_target=True)
    if task == "multi_label":
        targets = (teacher / temperature).sigmoid()
        cross_entropy = functional.binary_cross_entropy_with_logits(student / temperature, targets)
        entropy = functional.binary_cross_entropy_with_logits(teacher / temperature, targets)
        return temperature**2 * (cross_entropy - entropy)
    if task == "detection":
        return task_losses.detection_distance(student, teacher, temperature)
    if task == "segmentation":
        return task_losses.segmentation_distance(student, teacher, temperature)
    if task == "embedding":
        return task_losses.embedding_distance(student, teacher)
    return functional.mse_loss(student, teacher)
