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
    """How soft the targets are, and how much they count."""

    loss: Literal["soft_targets"] = "soft_targets"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")


def loss(student: Outputs, teacher: Outputs, wanted: Tensor, options: Options, task: Task = "classification") -> Tensor:
    """See `mixed`."""
    return mixed(student.logits, teacher.logits, wanted, options.temperature, options.alpha, task)


def mixed(
    student: Tensor, teacher: Tensor, wanted: Tensor, temperature: float, alpha: float, task: Task = "classification"
) -> Tensor:
    """alpha * the distance to the teacher's outputs + (1 - alpha) * that to what is wanted (`losses.hard`).

    Of logits (N, classes) the distance is T^2 * KL(teacher || student, both softened by T), which keeps the soft part's
    gradient at the scale of the hard part's. For several labels it is the same for each of them, for masks for each
    cell. For values and reconstructions it is the squared error, and of vectors 1 - cosine; T has no meaning there.
    """
    hard = losses.hard(task)(student, wanted)
    return alpha * _distance(student, teacher, temperature, task) + (1 - alpha) * hard


def _distance(student: Tensor, teacher: Tensor, temperature: float, task: Task) -> Tensor:
    from torch.nn import functional

    from edgekit.training import task_losses

    if task == "classification":
        learnt, taught = (functional.log_softmax(each / temperature, dim=1) for each in (student, teacher))
        return temperature**2 * functional.kl_div(learnt, taught, reduction="batchmean", log_target=True)
    if task == "multi_label":
        said = (teacher / temperature).sigmoid()
        apart = functional.binary_cross_entropy_with_logits(student / temperature, said)
        own = functional.binary_cross_entropy_with_logits(teacher / temperature, said)
        return temperature**2 * (apart - own)
    if task == "detection":
        return task_losses.detection_distance(student, teacher, temperature)
    if task == "segmentation":
        return task_losses.segmentation_distance(student, teacher, temperature)
    if task == "embedding":
        return task_losses.embedding_distance(student, teacher)
    return functional.mse_loss(student, teacher)
