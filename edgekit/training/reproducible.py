"""The settings of the process under which a training gives the same bits, and gives them soon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def reproducible(device: torch.device, seed: int, threads: int) -> Iterator[None]:
    """Same seed, threads and machine: same bits on the CPU. The settings of the process are put back."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        torch.set_num_threads(threads or os.cpu_count() or 1)
        torch.use_deterministic_algorithms(device.type == "cpu")
        filled = do_not_fill_new_tensors()
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            torch.use_deterministic_algorithms(before[1])
            do_not_fill_new_tensors(filled)


def do_not_fill_new_tensors(fill: bool = False) -> bool:
    """Leave out the NaN that torch's deterministic mode writes into new memory before a result; what was set before."""
    settings: Any = torch.utils.deterministic
    before = bool(settings.fill_uninitialized_memory)
    settings.fill_uninitialized_memory = fill
    return before
