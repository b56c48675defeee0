"""Processes that torchrun started: the first runs the command, the others wait for its trainings.

The first one's trainings run in kernels, which inherit torchrun's environment. They announce each training in the
store of torchrun's agent.
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
from edgekit.training.shares import environment
from edgekit.training.shares.channel import Channel, PeerLost
from edgekit.training.shares.channel import join_group as joined_by

COUNT, TRAINING, END = "edgekit/trainings", "edgekit/training/{}", "edgekit/end"
POLL_S = 0.1


@contextmanager
def join_torchrun(count: int, device: torch.device) -> Iterator[Channel]:
    """In process 0: announce a training of `count` processes, and meet them."""
    store = _store()
    number = store.add(COUNT, 1)
    store.set(TRAINING.format(number), f"{count} {device.type}")
    with joined_by(dist.PrefixStore(str(number), store), 0, count, device) as channel:
        yield channel


@contextmanager
def leading() -> Iterator[None]:
    """In process 0's command: at its end, the others end as well."""
    try:
        yield
    finally:
        _store().set(END, "")


def follow() -> None:
    """In the other processes: take part in every training until process 0's command has ended."""
    from edgekit.training.shares import worker

    store, mine, number = _store(), environment.rank(), 0
    while True:
        number += 1
        while not store.check([TRAINING.format(number)]):
            if store.check([END]):
                return
            time.sleep(POLL_S)
        count, kind = store.get(TRAINING.format(number)).decode().split()
        if mine < int(count):
            with (
                suppress(PeerLost),  # the first process failed in this training, and may begin another
                joined_by(dist.PrefixStore(str(number), store), mine, int(count), torch.device(kind)) as channel,
            ):
                worker.answer(channel)


def _store() -> dist.Store:
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise ConfigError(
            "torchrun: its agent keeps no store for its processes; start it with --standalone, or with "
            "--rdzv-backend=c10d of torch 2.5 or newer"
        )
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(minutes=5))
