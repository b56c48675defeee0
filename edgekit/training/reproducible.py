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
    filling: Any = torch.utils.deterministic
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), filling.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        torch.set_num_threads(threads or os.cpu_count() or 1)
        torch.use_deterministic_algorithms(device.type == "cpu")
        # else torch writes NaN into each new tensor before the operator writes its result there
        filling.fill_uninitialized_memory = False
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            torch.use_deterministic_algorithms(before[1])
            filling.fill_uninitialized_memory = before[2]
