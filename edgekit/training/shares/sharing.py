"""What the training loop calls: a team for its batches, and the team's processes while the training lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task
from edgekit.training import positives
from edgekit.training.objective import Distillation, LabelObjective
from edgekit.training.shares.crew import together
from edgekit.training.shares.job import Job
from edgekit.training.shares.learner import Learner
from edgekit.training.shares.team import Team

TeamOf = Callable[[LabelObjective], Team | None]


@contextmanager
def sharing(
    shares: int,
    module: nn.Module,
    distillation: Distillation | None,
    task: Task,
    example: np.ndarray,
    device: torch.device,
    seed: int,
    precision: str = "float32",
) -> Iterator[TeamOf]:
    """Gives what makes the team from the training's objective; without shares (1) there is no team and no process.

    To be entered before anything hooks the networks. `example` is one preprocessed sample (1, *input).
    """
    if shares == 1:
        yield lambda _: None
        return

    def job() -> bytes:
        teacher = distillation.teacher if distillation else None
        return Job(
            module,
            teacher if isinstance(teacher, nn.Module) else None,
            distillation.loss if distillation else None,
            task,
            example,
            device.type,
            torch.get_num_threads(),
            precision,
        ).written()

    with together(job, shares, device) as wire:
        yield lambda aim: Team(Learner(module, aim, device), aim, shares, seed, wire)


def check_positives(labels: Any, batch_size: int, shares: int) -> None:
    """As `positives.check`, of one share: an embedding compares the samples of a share with one another."""
    try:
        positives.check(labels, batch_size // shares)
    except ConfigError as error:
        if shares == 1:
            raise
        raise ConfigError(f"training.shares: got {shares}, and a share is a batch of its own here. {error}") from None
