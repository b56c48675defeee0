"""The other processes' side: answer process 0's shares until it has no more. `crew` starts them."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from edgekit.core.errors import EdgekitError, StageError
from edgekit.models.user_errors import describe
from edgekit.training.shares.job import Job, learning
from edgekit.training.shares.team import send
from edgekit.training.shares.wire import PeerLost, Wire, joined, size_of, unpack

STORE, READY = "store", "ready"
"""Files in the folder that a training's processes share; the latter ends with a process's rank."""


def answer(wire: Wire) -> None:
    """Take one training part in, from its job to its end. PeerLost where process 0 has gone."""
    job = Job.read(wire.receive(0))
    with learning(job, wire.rank) as learner:
        size = size_of(learner.state)
        while (shares := wire.receive(0)) is not None:
            learner.follow(unpack(wire.spread(torch.empty(size, dtype=torch.uint8)), learner.state))
            for each in learner.learn(shares):
                send(wire, learner, each)


def train(folder: str, rank: int, processes: int, device: str) -> None:
    """In a process of its own: take part in one training. StageError for what goes wrong in this network's code."""
    home = Path(folder)
    (home / f"{READY}-{rank}").touch()
    try:
        with joined(dist.FileStore(str(home / STORE), processes), rank, processes, torch.device(device)) as wire:
            answer(wire)
    except (PeerLost, EdgekitError):
        raise
    except Exception as error:
        raise StageError(describe(error)) from error
