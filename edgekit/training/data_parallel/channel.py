"""Messages between the processes of a training over torch.distributed: gloo on the CPU, NCCL between CUDA devices.

Everything is sent as bytes, so that numbers arrive unchanged.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

SILENCE_LIMIT = timedelta(days=1)
"""The longest time between two messages. It is long because the workers wait while process 0 validates.

A process that dies is noticed at once, not only after this time.
"""


class PeerLost(Exception):
    """Another process of the training has ended, or the connection to it was lost."""


@dataclass(frozen=True)
class Channel:
    """The connection of one process to the others: its rank, the number of processes, and the device for messages."""

    rank: int
    processes: int
    device: torch.device

    def send(self, content: Any, to: int) -> None:
        """Send an object that torch.save can write."""
        buffer = io.BytesIO()
        torch.save(content, buffer)
        flat = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        with _lost_peer_errors():
            dist.send(torch.tensor([len(flat)], device=self.device), to)
            dist.send(flat.to(self.device), to)

    def receive(self, source: int) -> Any:
        """Receive an object. Unpickling it is safe, because only processes of the same training are connected."""
        size = torch.zeros(1, dtype=torch.int64, device=self.device)
        with _lost_peer_errors():
            dist.recv(size, source)
            flat = torch.empty(int(size), dtype=torch.uint8, device=self.device)
            dist.recv(flat, source)
        return torch.load(io.BytesIO(flat.cpu().numpy().tobytes()), weights_only=False)

    def send_flat(self, flat: Tensor, to: int) -> None:
        """Send bytes to a process that already knows how many they are."""
        with _lost_peer_errors():
            dist.send(flat.to(self.device), to)

    def receive_flat(self, size: int, source: int) -> Tensor:
        """Receive `size` bytes, on the CPU."""
        flat = torch.empty(size, dtype=torch.uint8, device=self.device)
        with _lost_peer_errors():
            dist.recv(flat, source)
        return flat.cpu()

    def broadcast(self, flat: Tensor) -> Tensor:
        """Send the bytes of process 0 to all others, and return them. In the others, `flat` only gives the size."""
        moved = flat.to(self.device)
        with _lost_peer_errors():
            dist.broadcast(moved, 0)
        return moved.cpu()


@contextmanager
def join_group(store: dist.Store, rank: int, processes: int, device: torch.device) -> Iterator[Channel]:
    """Join the process group of a training; the processes find each other through the store."""
    uses_nccl = device.type == "cuda" and dist.is_nccl_available() and torch.cuda.device_count() >= processes
    with _lost_peer_errors():
        dist.init_process_group(
            "nccl" if uses_nccl else "gloo", store=store, rank=rank, world_size=processes, timeout=SILENCE_LIMIT
        )
    try:
        yield Channel(rank, processes, device if uses_nccl else torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Return the bytes of all tensors, on the CPU."""
    parts = [each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def packed_size(tensors: Sequence[Tensor]) -> int:
    """Return the number of bytes that `pack` returns."""
    return sum(each.numel() * each.element_size() for each in tensors)


def unpack(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that `pack` packed; `like` are tensors of the same types and shapes."""
    tensors, start = [], 0
    for each in like:
        stop = start + each.numel() * each.element_size()
        # cloned, because a view of another type must be aligned to its size
        tensors.append(flat[start:stop].clone().view(each.dtype).reshape(each.shape))
        start = stop
    return tensors


@contextmanager
def _lost_peer_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
