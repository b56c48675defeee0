"""Training in processes that torchrun started: the first runs the command, the others take part in its trainings.

The first process trains in notebook kernels, which inherit torchrun's environment. The kernels announce each training
in the store of torchrun's agent, where the other processes look for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from edgekit.core.errors import ConfigError
from edgekit.training.data_parallel import environment
from edgekit.training.data_parallel.channel import Channel, PeerLost, join_group

COUNT_KEY, TRAINING_KEY, END_KEY = "edgekit/trainings", "edgekit/training/{}", "edgekit/end"
POLL_S = 0.1


@contextmanager
def join_torchrun(count: int, device: torch.device) -> Iterator[Channel]:
    """Announce a training of `count` processes, and yield the channel to them. Only process 0 calls this."""
    store = _agent_store()
    number = store.add(COUNT_KEY, 1)
    store.set(TRAINING_KEY.format(number), f"{count} {device.type}")
    with join_group(dist.PrefixStore(str(number), store), 0, count, device) as channel:
        yield channel


@contextmanager
def end_followers() -> Iterator[None]:
    """Run process 0's command inside the `with` block, and end the other processes after it."""
    try:
        yield
    finally:
        _agent_store().set(END_KEY, "")


def follow() -> None:
    """Take part in every training until process 0's command has ended. The other processes call this."""
    from edgekit.training.data_parallel import worker

    store, rank, number = _agent_store(), environment.rank(), 0
    while True:
        number += 1
        while not store.check([TRAINING_KEY.format(number)]):
            if store.check([END_KEY]):
                return
            time.sleep(POLL_S)
        count, device_type = store.get(TRAINING_KEY.format(number)).decode().split()
        if rank < int(count):
            with (
                suppress(PeerLost),  # the first process failed in this training, and may begin another
                join_group(
                    dist.PrefixStore(str(number), store), rank, int(count), torch.device(device_type)
                ) as channel,
            ):
                worker.serve_training(channel)


def _agent_store() -> dist.Store:
    """Connect to the store of torchrun's agent. Raises ConfigError if it does not offer one to its processes."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise ConfigError(
            "torchrun: its agent offers no store to its processes; start it with --standalone, or with "
            "--rdzv-backend=c10d of torch 2.5 or newer"
        )
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(minutes=5))
