"""Distillation losses: one file each, the file's name is its key.

A file offers `class Options(LossOptions)`, `loss(student, teacher, wanted, options)` and `NEEDS_FEATURES`; with
`FOR_ALL_TASKS` its loss gets the task as well, else it serves classes alone. Nothing here imports torch before a loss
is computed: a config is checked without torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from edgekit.core.config import StrictModel, suggest, validate
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
_WHERE = "distill.losses"


class LossOptions(StrictModel):
    """Options that every loss takes. A loss's own `Options` narrows `loss` to its file's name."""

    loss: str = Field(description="name of the loss")


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a network says about a batch; `features` go from fine to coarse, in order of execution."""

    logits: Tensor
    """(N, classes), or whatever else the task's outputs are"""
    features: tuple[Tensor, ...] = ()
    """Feature maps, (N, C, H, W) each; empty unless the loss has NEEDS_FEATURES."""


def parse(section: dict[str, Any]) -> LossOptions:
    """Check one entry of `distill.losses`, `{"loss": "dkd", "beta": 4.0}`; ConfigError names what was meant."""
    if not isinstance(section, dict) or "loss" not in section:
        raise ConfigError(f"{_WHERE}: got {section!r}; it needs `loss:`, one of {', '.join(NAMES)}")
    name = section["loss"]
    if not isinstance(name, str):
        raise ConfigError(f"{_WHERE}.loss: got {name!r}; it must be one of {', '.join(NAMES)}")
    if name not in NAMES:
        raise ConfigError(f"{_WHERE}.loss: got {name!r}; {suggest(name, NAMES)}")
    options: LossOptions = validate(_module(name).Options, section, _WHERE)
    return options


def function(options: LossOptions, task: Task = "classification") -> Callable[[Outputs, Outputs, Tensor], Tensor]:
    """`(student, teacher, wanted) -> scalar`, the mean over the batch; `wanted` as for `hard`."""
    module = _module(options.loss)
    extra = {"task": task} if module.FOR_ALL_TASKS else {}
    return partial(module.loss, options=options, **extra)


def serves(options: LossOptions, task: Task) -> bool:
    """Whether the loss can compare what networks of this task say."""
    return task == "classification" or bool(_module(options.loss).FOR_ALL_TASKS)


def hard(task: Task) -> Callable[[Tensor, Tensor], Tensor]:
    """`(outputs, wanted) -> scalar`, what is minimised without a teacher, the mean over the batch.

    Cross entropy with classes (N,) int64, binary cross entropy with labels (N, labels) of 0 and 1, and the squared
    error of values (N, values), or of a reconstruction, for which the network's input itself is wanted. Other tasks
    have theirs in `edgekit.training.task_losses`.
    """
    from torch.nn import functional

    from edgekit.training import task_losses

    if task == "multi_label":
        return lambda outputs, wanted: functional.binary_cross_entropy_with_logits(outputs, wanted.to(outputs.dtype))
    by_task: dict[Task, Callable[..., Tensor]] = {
        "classification": functional.cross_entropy,
        "detection": task_losses.detection_loss,
        "segmentation": task_losses.segmentation_loss,
        "embedding": task_losses.contrastive_loss,
    }
    return by_task.get(task, functional.mse_loss)


def needs_features(options: LossOptions) -> bool:
    """True where the loss compares feature maps, so `Outputs.features` must be filled."""
    return bool(_module(options.loss).NEEDS_FEATURES)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
