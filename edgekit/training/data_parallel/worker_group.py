"""The worker processes of a training, started here or by torchrun, and the errors if one of them dies."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from edgekit.core.errors import EdgekitError, StageError
from edgekit.core.subprocesses import BackgroundCall, ChildDied
from edgekit.device import processes
from edgekit.training.data_parallel import environment, torchrun, worker
from edgekit.training.data_parallel.channel import Channel, PeerLost, join_group

START_LIMIT_S = 300.0
EXIT_LIMIT_S = 5.0
"""Seconds to wait for the exit of a process whose connection was lost."""
RESUME_HINT = "finished epochs are saved; run the stage again to continue the training"


@contextmanager
def worker_processes(job: Callable[[], bytes], shards: int, device: torch.device) -> Iterator[Channel | None]:
    """Run the worker processes inside the `with` block, and yield the channel to them, or None if there are none.

    If the job cannot be pickled, this process computes all shards itself, with the same result, and prints why. Raises
    StageError if a worker process dies.
    """
    count = min(shards, environment.process_count())
    try:
        content = job() if count > 1 else b""
    except Exception as error:  # pickle raises all kinds of exceptions if a class cannot be imported
        print(f"one process trains all {shards} shards, because the network cannot be sent to others ({error})")
        count = 1
    if count == 1:
        yield None
    elif environment.torchrun_processes():
        with _explain_lost_peer([]), torchrun.join_torchrun(count, device) as channel:
            yield from _distribute_job(channel, content)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="edgekit-shards-") as folder,
            _start_workers(Path(folder), count, device) as peers,
            _explain_lost_peer(peers),
            _use_loopback(),
            join_group(dist.FileStore(str(Path(folder) / worker.STORE), count), 0, count, device) as channel,
        ):
            yield from _distribute_job(channel, content)


def _distribute_job(channel: Channel, content: bytes) -> Iterator[Channel]:
    others = range(1, channel.processes)
    for rank in others:
        channel.send(content, rank)
    yield channel
    for rank in others:
        channel.send(None, rank)


@dataclass(frozen=True)
class _WorkerProcess:
    """A worker process: its name in messages, the file that it creates when it is ready, and its call."""

    name: str
    ready: Path
    call: BackgroundCall

    def end_error(self) -> Exception | None:
        """Return the error that ended the process, or None while it runs."""
        if not self.call.has_ended:
            return None
        try:
            self.call.result()
        except ChildDied as died:
            return StageError(f"{died.ended.describe(self.name)}; {RESUME_HINT}")
        except EdgekitError as error:
            return type(error)(f"{self.name}: {error}")
        return StageError(f"{self.name} ended before the others; {RESUME_HINT}")


@contextmanager
def _start_workers(folder: Path, count: int, device: torch.device) -> Iterator[list[_WorkerProcess]]:
    """Start the worker processes and wait until they are ready. They all end with this process."""
    peers: list[_WorkerProcess] = []
    with ExitStack() as stack:
        for rank in range(1, count):
            home = folder / f"process-{rank}"
            home.mkdir()
            job = {"folder": str(folder), "rank": rank, "processes": count, "device": device.type}
            call = stack.enter_context(
                BackgroundCall("edgekit.training.data_parallel.worker:train", job, home, _LOOPBACK)
            )
            peers.append(
                _WorkerProcess(f"training process {rank + 1} of {count}", folder / f"{worker.READY}-{rank}", call)
            )
        _wait_until_ready(peers)
        yield peers


def _wait_until_ready(peers: list[_WorkerProcess]) -> None:
    """Wait until all processes have started. Raises StageError if one does not."""
    deadline = time.monotonic() + START_LIMIT_S
    for peer in peers:
        while not peer.ready.exists():
            if error := peer.end_error():
                raise error
            if time.monotonic() > deadline:
                raise StageError(f"{peer.name}: did not start in {START_LIMIT_S:g} s")
            time.sleep(processes.POLL_S)


@contextmanager
def _explain_lost_peer(peers: list[_WorkerProcess]) -> Iterator[None]:
    """Turn `PeerLost` into an error that says why the other process died: a StageError, or that process's own error."""
    try:
        yield
    except PeerLost as lost:
        deadline = time.monotonic() + EXIT_LIMIT_S
        while True:
            for peer in peers:
                if error := peer.end_error():
                    raise error from lost
            if time.monotonic() > deadline or not peers:
                raise StageError(f"lost the connection to another training process ({lost}); {RESUME_HINT}") from lost
            time.sleep(processes.POLL_S)


_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
"""Processes on one machine use the loopback interface, because the machine's host name may not resolve."""


@contextmanager
def _use_loopback() -> Iterator[None]:
    previous = {name: os.environ.get(name) for name in _LOOPBACK}
    os.environ.update(_LOOPBACK)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
