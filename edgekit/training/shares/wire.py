"""Messages between the processes of one training, over torch.distributed: gloo on the CPU, NCCL between CUDA devices.

Everything travels as bytes, so that a number arrives with the bits that it was sent with.
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

LIMIT = timedelta(days=1)
"""Longest silence between two messages: the others wait while process 0 validates. A dead process is told at once."""


class PeerLost(Exception):
    """Another process of the training is gone, or the line to it."""


@dataclass(frozen=True)
class Wire:
    """One process's end: its rank, how many processes there are, and the device that messages leave from."""

    rank: int
    processes: int
    device: torch.device

    def send(self, content: Any, to: int) -> None:
        """Send what torch.save can write."""
        written = io.BytesIO()
        torch.save(content, written)
        flat = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)
        with _lines():
            dist.send(torch.tensor([len(flat)], device=self.device), to)
            dist.send(flat.to(self.device), to)

    def receive(self, source: int) -> Any:
        """What `send` sent; only processes of one training talk to one another."""
        size = torch.zeros(1, dtype=torch.int64, device=self.device)
        with _lines():
            dist.recv(size, source)
            flat = torch.empty(int(size), dtype=torch.uint8, device=self.device)
            dist.recv(flat, source)
        return torch.load(io.BytesIO(flat.cpu().numpy().tobytes()), weights_only=False)

    def send_flat(self, flat: Tensor, to: int) -> None:
        """Send bytes whose number the other side knows."""
        with _lines():
            dist.send(flat.to(self.device), to)

    def receive_flat(self, size: int, source: int) -> Tensor:
        """So many bytes, on the CPU."""
        flat = torch.empty(size, dtype=torch.uint8, device=self.device)
        with _lines():
            dist.recv(flat, source)
        return flat.cpu()

    def spread(self, flat: Tensor) -> Tensor:
        """Process 0's bytes, in every process."""
        moved = flat.to(self.device)
        with _lines():
            dist.broadcast(moved, 0)
        return moved.cpu()


@contextmanager
def joined(store: dist.Store, rank: int, processes: int, device: torch.device) -> Iterator[Wire]:
    """The group of a training's processes, which find one another by the store."""
    by_nccl = device.type == "cuda" and dist.is_nccl_available() and torch.cuda.device_count() >= processes
    with _lines():
        dist.init_process_group(
            "nccl" if by_nccl else "gloo", store=store, rank=rank, world_size=processes, timeout=LIMIT
        )
    try:
        yield Wire(rank, processes, device if by_nccl else torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of all of them, on the CPU."""
    parts = [each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def size_of(tensors: Sequence[Tensor]) -> int:
    """How many bytes `pack` gives."""
    return sum(each.numel() * each.element_size() for each in tensors)


def unpack(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What was packed, by tensors of the same types and shapes."""
    found, start = [], 0
    for each in like:
        stop = start + each.numel() * each.element_size()
        # cloned: a view of another type must begin at a multiple of its size
        found.append(flat[start:stop].clone().view(each.dtype).reshape(each.shape))
        start = stop
    return found


@contextmanager
def _lines() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
