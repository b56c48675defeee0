"""Start and end the data-parallel part of a training, as the training loop calls it."""

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
from edgekit.training.data_parallel.coordinator import ShardCoordinator
from edgekit.training.data_parallel.job import Job
from edgekit.training.data_parallel.learner import ShardLearner
from edgekit.training.data_parallel.worker_group import worker_processes
from edgekit.training.objective import Distillation, LabelObjective

MakeCoordinator = Callable[[LabelObjective], ShardCoordinator | None]


@contextmanager
def open_coordinator(
    shards: int,
    module: nn.Module,
    distillation: Distillation | None,
    task: Task,
    example: np.ndarray,
    device: torch.device,
    seed: int,
    precision: str = "float32",
    label_smoothing: float = 0.0,
) -> Iterator[MakeCoordinator]:
    """Start the worker processes and yield a function that makes the coordinator from the training's objective.

    With one shard, that function returns None and no process is started. Enter this context before any hooks are
    registered in the networks. `example` is one preprocessed sample of shape (1, *input).
    """
    if shards == 1:
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
            label_smoothing,
        ).to_bytes()

    with worker_processes(job, shards, device) as channel:
        yield lambda objective: ShardCoordinator(
            ShardLearner(module, objective, device), objective, shards, seed, channel
        )


def check_positives(labels: Any, batch_size: int, shards: int) -> None:
    """Check that a shard has pairs of samples with the same label, which an embedding compares within a shard.

    Raises ConfigError like `positives.check_batch_size`.
    """
    try:
        positives.check_batch_size(labels, batch_size // shards)
    except ConfigError as error:
        if shards == 1:
            raise
        raise ConfigError(
            f"training.shares: got {shards}, and an embedding compares only the samples within a shard. {error}"
        ) from None
