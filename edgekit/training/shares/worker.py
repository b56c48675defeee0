"""The other processes' side: answer process 0's shares until it has no more.

`python -m edgekit.training.shares.worker FOLDER RANK PROCESSES DEVICE` is one of them, started by `crew`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from edgekit.core import subprocesses
from edgekit.core.errors import EdgekitError
from edgekit.models.user_errors import describe
from edgekit.training.shares.job import Job, learning
from edgekit.training.shares.team import send
from edgekit.training.shares.wire import PeerLost, Wire, joined, size_of, unpack

STORE, ERROR, READY = "store", "error", "ready"
"""Files in the folder that a training's processes share; the latter two end with a process's rank."""


def answer(wire: Wire) -> None:
    """Take one training part in, from its job to its end. PeerLost where process 0 has gone."""
    job = Job.read(wire.receive(0))
    with learning(job, wire.rank) as learner:
        size = size_of(learner.state)
        while (shares := wire.receive(0)) is not None:
            learner.follow(unpack(wire.spread(torch.empty(size, dtype=torch.uint8)), learner.state))
            for each in learner.learn(shares):
                send(wire, learner, each)


def main(folder: Path, rank: int, processes: int, device: str) -> int:
    """Exit code 1 where process 0 has gone, or where the reason lies in the folder."""
    try:
        (folder / f"{READY}-{rank}").touch()
        store = dist.FileStore(str(folder / STORE), processes)
        with joined(store, rank, processes, torch.device(device)) as wire:
            answer(wire)
    except PeerLost:
        return 1
    except Exception as error:
        kind, words = (type(error).__name__, str(error)) if isinstance(error, EdgekitError) else ("", describe(error))
        (folder / f"{ERROR}-{rank}").write_text(json.dumps({"kind": kind, "error": words}), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    subprocesses.leave_with_parent()
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
