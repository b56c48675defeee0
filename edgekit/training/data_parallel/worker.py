"""The worker processes: compute the gradients of shards for process 0. `worker_group` starts them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from edgekit.core.errors import EdgekitError, StageError
from edgekit.models.user_errors import describe
from edgekit.training.data_parallel.channel import Channel, PeerLost, join_group, packed_size, unpack
from edgekit.training.data_parallel.coordinator import send_gradients
from edgekit.training.data_parallel.job import Job, open_learner

STORE, READY = "store", "ready"
"""Files in the folder that a training's processes share. Each process that is ready creates `ready-RANK`."""


def serve_training(channel: Channel) -> None:
    """Compute gradients for one training, from its job to its end. Raises PeerLost if process 0 has ended."""
    job = Job.read(channel.receive(0))
    with open_learner(job, channel.rank) as learner:
        size = packed_size(learner.state)
        while (shards := channel.receive(0)) is not None:
            learner.follow(unpack(channel.broadcast(torch.empty(size, dtype=torch.uint8)), learner.state))
            for gradient in learner.learn(shards):
                send_gradients(channel, gradient)


def train(folder: str, rank: int, processes: int, device: str) -> None:
    """Run one worker process for one training. Raises StageError for errors of the network."""
    home = Path(folder)
    (home / f"{READY}-{rank}").touch()
    try:
        with join_group(dist.FileStore(str(home / STORE), processes), rank, processes, torch.device(device)) as channel:
            serve_training(channel)
    except (PeerLost, EdgekitError):
        raise
    except Exception as error:
        raise StageError(describe(error)) from error
