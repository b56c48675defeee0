"""The worker processes: compute the gradients of shards for process 0. `worker_group` starts them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from edgekit.core.errors import EdgekitError, StageError
from edgekit.models.user_errors import describe
from edgekit.training.shares.channel import Channel, PeerLost, join_group, packed_size, unpack
from edgekit.training.shares.coordinator import send_gradients
from edgekit.training.shares.job import Job, learning

STORE, READY = "store", "ready"
"""Files in the folder that a training's processes share; the latter ends with a process's rank."""


def answer(channel: Channel) -> None:
    """Take part in one training, from its job to its end. Raises PeerLost if process 0 has ended."""
    job = Job.read(channel.receive(0))
    with learning(job, channel.rank) as learner:
        size = packed_size(learner.state)
        while (shares := channel.receive(0)) is not None:
            learner.follow(unpack(channel.broadcast(torch.empty(size, dtype=torch.uint8)), learner.state))
            for each in learner.learn(shares):
                send_gradients(channel, learner, each)


def train(folder: str, rank: int, processes: int, device: str) -> None:
    """Take part in one training, as the main function of a process. Raises StageError for errors of the network."""
    home = Path(folder)
    (home / f"{READY}-{rank}").touch()
    try:
        with join_group(dist.FileStore(str(home / STORE), processes), rank, processes, torch.device(device)) as channel:
            answer(channel)
    except (PeerLost, EdgekitError):
        raise
    except Exception as error:
        raise StageError(describe(error)) from error
