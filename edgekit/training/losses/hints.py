"""Hints: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015: the student foretells the teacher's maps.

FitNets trains up to one hint first and on soft targets afterwards. Here one loss does both from the first step, as in
Tian, Krishnan, Isola, "Contrastive Representation Distillation", ICLR 2020, whose comparison the weight is from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.training.losses import LossOptions, Outputs
from edgekit.training.losses.soft_targets import mixed

if TYPE_CHECKING:
    from torch import Tensor, nn

NEEDS_FEATURES = True
FOR_ALL_TASKS = True


class Options(LossOptions):
    """Soft targets, and how much the feature maps count beside them."""

    loss: Literal["hints"] = "hints"
    temperature: float = Field(4.0, ge=0.1, le=100, description="temperature of the softmax, for teacher and student")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")
    weight: float = Field(100.0, ge=0, le=10_000, description="weight of the feature maps' mean squared error")


def loss(student: Outputs, teacher: Outputs, wanted: Tensor, options: Options, task: Task = "classification") -> Tensor:
    """Soft targets + weight * the squared error of the feature maps, averaged over each map's elements and the maps.

    `student.features` have gone through `regressors`. The teacher's maps are taken as they are, as in FitNets'
    equation 3: the regressors' batch normalisation learns each channel's scale.
    """
    import torch
    from torch.nn import functional

    _agree(student.features, teacher.features)
    errors = [functional.mse_loss(*pair) for pair in zip(student.features, teacher.features, strict=True)]
    soft = mixed(student.logits, teacher.logits, wanted, options.temperature, options.alpha, task)
    return soft + options.weight * torch.stack(errors).mean()


def paired(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The maps of both whose size (H, W) the other has as well, in the student's order; ModelError if there is none."""
    by_size = {tuple(each.shape[2:]): each for each in teacher}
    learnt = tuple(each for each in student if tuple(each.shape[2:]) in by_size)
    if not learnt:
        _agree(student, teacher)
    return learnt, tuple(by_size[tuple(each.shape[2:])] for each in learnt)


def regressors(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]) -> nn.ModuleList:
    """For each pair of maps (N, C, H, W) a 1x1 convolution and batch normalisation: student's channels to teacher's.

    Fresh weights come from torch's global generator; train them with the student, and drop them afterwards.
    ModelError where the maps differ in number or size.
    """
    from torch import nn

    from edgekit.models.layers import conv_bn

    _agree(student, teacher)
    return nn.ModuleList(
        conv_bn(learnt.shape[1], taught.shape[1], 1) for learnt, taught in zip(student, teacher, strict=True)
    )


def _agree(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...]) -> None:
    learnt, taught = ([tuple(x.shape[2:]) for x in maps] for maps in (student, teacher))
    if not learnt or learnt != taught:
        raise ModelError(
            f"hints compares feature maps of the same sizes, got {_sizes(learnt)} of the student and "
            f"{_sizes(taught)} of the teacher; give both the same strides, or choose a loss of logits alone"
        )


def _sizes(maps: list[tuple[int, ...]]) -> str:
    return ", ".join("×".join(str(side) for side in size) for size in maps) or "none"
