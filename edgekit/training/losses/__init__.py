"""Distillation losses. Each is a module here, and the module's name is its key in a config.

Such a module defines:

- `Options`, a subclass of `LossOptions`
- `loss(student, teacher, labels, options, label_smoothing)`, which returns a scalar, the mean over the batch
- `NEEDS_FEATURES`, whether it compares feature maps
- `FOR_ALL_TASKS`, whether it supports other tasks than classification; `loss` then also takes `task`

Nothing here imports torch before a loss is computed, so that configs can be checked without torch.
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
    """Options of every loss. The `Options` of a module narrow `loss` to the name of the module."""

    loss: str = Field(description="name of the loss")


@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of a network for a batch."""

    logits: Tensor
    """Logits (N, classes), or the outputs of another task."""
    features: tuple[Tensor, ...] = ()
    """Feature maps (N, C, H, W) in order of execution, from fine to coarse; empty unless the loss NEEDS_FEATURES."""


def parse(section: dict[str, Any]) -> LossOptions:
    """Check one entry of `distill.losses`, for example `{"loss": "dkd", "beta": 4.0}`, and return its options.

    Raises ConfigError if the entry is wrong, and suggests the name that was probably meant.
    """
    if not isinstance(section, dict) or "loss" not in section:
        raise ConfigError(f"{_WHERE}: got {section!r}; it needs `loss:` with one of {', '.join(NAMES)}")
    name = section["loss"]
    if not isinstance(name, str):
        raise ConfigError(f"{_WHERE}.loss: got {name!r}; it must be one of {', '.join(NAMES)}")
    if name not in NAMES:
        raise ConfigError(f"{_WHERE}.loss: got {name!r}; {suggest(name, NAMES)}")
    options: LossOptions = validate(_module(name).Options, section, _WHERE)
    return options


def function(
    options: LossOptions, task: Task = "classification", label_smoothing: float = 0.0
) -> Callable[[Outputs, Outputs, Tensor], Tensor]:
    """Return the function `(student, teacher, labels) -> scalar` of a loss, which is averaged over the batch.

    The labels and their smoothing are those of `label_loss`.
    """
    module = _module(options.loss)
    extra = {"task": task} if module.FOR_ALL_TASKS else {}
    return partial(module.loss, options=options, label_smoothing=label_smoothing, **extra)


def supports_task(options: LossOptions, task: Task) -> bool:
    """Return whether the loss can compare the outputs of networks for this task."""
    return task == "classification" or bool(_module(options.loss).FOR_ALL_TASKS)


def check_label_smoothing(smoothing: float, task: Task, where: str = "label_smoothing") -> None:
    """Raise ConfigError if labels are to be smoothed that are not classes. `where` is the place in the config."""
    if smoothing and task != "classification":
        raise ConfigError(
            f"{where}: got {smoothing:g}, but task is {task}; only the labels of classification are smoothed: leave it "
            "out"
        )


def label_loss(task: Task, label_smoothing: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss `(outputs, labels) -> scalar` of a task without a teacher, averaged over the batch.

    This is the cross entropy for classes (N,) int64 or soft labels (N, classes), the binary cross entropy for labels
    (N, labels) of 0 and 1, and the squared error for values (N, values). For reconstructions it is the squared error as
    well, and the labels are the inputs of the network. The losses of other tasks are in `edgekit.training.task_losses`.

    Label smoothing (Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7) replaces a label by
    (1 - s) * label + s / classes. Raises ConfigError for other tasks than classification.
    """
    from torch.nn import functional

    from edgekit.training import task_losses

    check_label_smoothing(label_smoothing, task)
    if task == "multi_label":
        return lambda outputs, labels: functional.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
    by_task: dict[Task, Callable[..., Tensor]] = {
        "classification": partial(functional.cross_entropy, label_smoothing=label_smoothing),
        "detection": task_losses.detection_loss,
        "segmentation": task_losses.segmentation_loss,
        "embedding": task_losses.contrastive_loss,
    }
    return by_task.get(task, functional.mse_loss)


def needs_features(options: LossOptions) -> bool:
    """Return whether the loss compares feature maps, so that `Outputs.features` must be given."""
    return bool(_module(options.loss).NEEDS_FEATURES)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
