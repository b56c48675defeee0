"""Hints: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015.

The student learns to predict the teacher's feature maps. FitNets first trains the layers up to one hint, and then the
whole network on soft targets. Here one loss does both from the first step, as in Tian, Krishnan, Isola, "Contrastive
Representation Distillation", ICLR 2020. The default weight is from the comparison in that paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.training.losses import LossOptions, Outputs
from edgekit.training.losses.soft_targets import combined_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

NEEDS_FEATURES = True
FOR_ALL_TASKS = True


class Options(LossOptions):
    """Options of soft targets, and the weight of the feature maps."""

    loss: Literal["hints"] = "hints"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")
    weight: float = Field(100.0, ge=0, le=10_000, description="weight of the feature maps' mean squared error")


def loss(
    student: Outputs,
    teacher: Outputs,
    labels: Tensor,
    options: Options,
    task: Task = "classification",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the soft-target loss + weight * the mean squared error of the feature maps, in which all maps count alike.

    `student.features` are the outputs of the regressors (see `build_regressors`). The teacher's maps are not
    normalized, as in equation 3 of FitNets, because the batch normalization of the regressors learns the scale of each
    channel. Raises ModelError if the maps differ in number or size.
    """
    import torch
    from torch.nn import functional

    _check_sizes(student.features, teacher.features)
    errors = [functional.mse_loss(*pair) for pair in zip(student.features, teacher.features, strict=True)]
    soft = combined_loss(
        student.logits, teacher.logits, labels, options.temperature, options.alpha, task, label_smoothing
    )
    return soft + options.weight * torch.stack(errors).mean()


def matching_maps(
    student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the maps of student and teacher that have the same size (H, W) in both, in the student's order.

    Raises ModelError if there are none.
    """
    by_size = {tuple(each.shape[2:]): each for each in teacher}
    student_maps = tuple(each for each in student if tuple(each.shape[2:]) in by_size)
    if not student_maps:
        _check_sizes(student, teacher)
    return student_maps, tuple(by_size[tuple(each.shape[2:])] for each in student_maps)


def build_regressors(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]) -> nn.ModuleList:
    """Return a regressor for each pair of maps (N, C, H, W), from the student's number of channels to the teacher's.

    A regressor is a 1×1 convolution with batch normalization. Its initial weights come from torch's global random
    generator. Regressors are trained with the student and discarded afterwards. Raises ModelError if the maps differ in
    number or size.
    """
    from torch import nn

    from edgekit.models.layers import conv_bn

    _check_sizes(student, teacher)
    return nn.ModuleList(
        conv_bn(student_map.shape[1], teacher_map.shape[1], 1)
        for student_map, teacher_map in zip(student, teacher, strict=True)
    )


def _check_sizes(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]) -> None:
    student_sizes, teacher_sizes = ([tuple(x.shape[2:]) for x in maps] for maps in (student, teacher))
    if not student_sizes or student_sizes != teacher_sizes:
        raise ModelError(
            f"hints compares feature maps of the same sizes, got {_describe(student_sizes)} of the student and "
            f"{_describe(teacher_sizes)} of the teacher; give both the same strides, or choose a loss that compares "
            "logits only"
        )


def _describe(sizes: list[tuple[int, ...]]) -> str:
    return ", ".join("×".join(str(side) for side in size) for size in sizes) or "none"
