"""The processes of one training: how many, started here or by torchrun, and what is said where one of them dies."""

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
from edgekit.training.shares import environment, torchrun, worker
from edgekit.training.shares.wire import PeerLost, Wire, joined

START_LIMIT_S = 300.0
GONE_LIMIT_S = 5.0
"""How long a process may take to be seen as dead, after its line was cut."""
AGAIN = "finished epochs are kept: run it again, and the training goes on"


@contextmanager
def together(job: Callable[[], bytes], shares: int, device: torch.device) -> Iterator[Wire | None]:
    """Inside, the other processes wait for shares; None where this one is alone. StageError where one dies.

    Where a job cannot be written, one process computes all shares, to the same bits, and a line says why.
    """
    count = min(shares, environment.processes())
    try:
        content = job() if count > 1 else b""
    except Exception as error:  # pickle raises what it likes: this network's classes are not to be imported
        print(f"one process trains all {shares} shares: the network cannot be sent to others ({error})")
        count = 1
    if count == 1:
        yield None
    elif environment.of_torchrun():
        with _translated([]), torchrun.joined(count, device) as wire:
            yield from _with_jobs(wire, content)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="edgekit-shares-") as folder,
            _started(Path(folder), count, device) as peers,
            _translated(peers),
            _loopback(),
            joined(dist.FileStore(str(Path(folder) / worker.STORE), count), 0, count, device) as wire,
        ):
            yield from _with_jobs(wire, content)


def _with_jobs(wire: Wire, content: bytes) -> Iterator[Wire]:
    others = range(1, wire.processes)
    for rank in others:
        wire.send(content, rank)
    yield wire
    for rank in others:
        wire.send(None, rank)


@dataclass(frozen=True)
class _Peer:
    """Another process of the training: its name in messages, the file that it makes when it is ready, its call."""

    name: str
    ready: Path
    call: BackgroundCall

    def why(self) -> Exception | None:
        """What ended it; None while it runs."""
        if not self.call.has_ended:
            return None
        try:
            self.call.result()
        except ChildDied as died:
            return StageError(f"{died.ended.describe(self.name)}; {AGAIN}")
        except EdgekitError as error:
            return type(error)(f"{self.name}: {error}")
        return StageError(f"{self.name} ended before the others; {AGAIN}")


@contextmanager
def _started(folder: Path, count: int, device: torch.device) -> Iterator[list[_Peer]]:
    """The other processes, ready to meet; all of them end with this one, however it ends."""
    peers: list[_Peer] = []
    with ExitStack() as stack:
        for rank in range(1, count):
            home = folder / f"process-{rank}"
            home.mkdir()
            job = {"folder": str(folder), "rank": rank, "processes": count, "device": device.type}
            call = stack.enter_context(BackgroundCall("edgekit.training.shares.worker:train", job, home, _LOOPBACK))
            peers.append(_Peer(f"training process {rank + 1} of {count}", folder / f"{worker.READY}-{rank}", call))
        _wait(peers)
        yield peers


def _wait(peers: list[_Peer]) -> None:
    """Until all have started; StageError where one did not."""
    until = time.monotonic() + START_LIMIT_S
    for peer in peers:
        while not peer.ready.exists():
            if why := peer.why():
                raise why
            if time.monotonic() > until:
                raise StageError(f"{peer.name}: did not start in {START_LIMIT_S:g} s")
            time.sleep(processes.POLL_S)


@contextmanager
def _translated(peers: list[_Peer]) -> Iterator[None]:
    """A line that was cut, as the reason why the process at its other end died."""
    try:
        yield
    except PeerLost as lost:
        until = time.monotonic() + GONE_LIMIT_S
        while True:
            for peer in peers:
                if why := peer.why():
                    raise why from lost
            if time.monotonic() > until or not peers:
                raise StageError(f"another training process is lost ({lost}); {AGAIN}") from lost
            time.sleep(processes.POLL_S)


_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
"""Processes of one machine talk over its own address; its name may have none."""


@contextmanager
def _loopback() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _LOOPBACK}
    os.environ.update(_LOOPBACK)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
