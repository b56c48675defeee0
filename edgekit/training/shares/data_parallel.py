"""The entry point of the training loop to data-parallel training."""

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
from edgekit.training.shares.coordinator import ShardCoordinator
from edgekit.training.shares.job import Job
from edgekit.training.shares.learner import ShardLearner
from edgekit.training.shares.worker_group import worker_processes

MakeCoordinator = Callable[[LabelObjective], ShardCoordinator | None]


@contextmanager
def open_coordinator(
    shares: int,
    module: nn.Module,
    distillation: Distillation | None,
    task: Task,
    example: np.ndarray,
    device: torch.device,
    seed: int,
    precision: str = "float32",
) -> Iterator[MakeCoordinator]:
    """Start the worker processes and yield a function that makes the coordinator from the training's objective.

    With `shares` of 1, that function returns None and no process is started. Enter this context before any hooks are
    registered in the networks. `example` is one preprocessed sample of shape (1, *input).
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
        ).to_bytes()

    with worker_processes(job, shares, device) as channel:
        yield lambda aim: ShardCoordinator(ShardLearner(module, aim, device), aim, shares, seed, channel)


def check_positives(labels: Any, batch_size: int, shares: int) -> None:
    """Check a shard with `positives.check`, because an embedding only compares samples within a shard."""
    try:
        positives.check(labels, batch_size // shares)
    except ConfigError as error:
        if shares == 1:
            raise
        raise ConfigError(f"training.shares: got {shares}, and a share is a batch of its own here. {error}") from None
