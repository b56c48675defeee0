"""Settings of the process in which a network is trained: reproducibility, precision and memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


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


@contextmanager
def computing_in(precision: str, module: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the module computes in that precision while it is in training mode; its answers are float32.

    The forward and the backward pass of convolutions and matrices compute in it (torch.autocast). Weights, their
    gradients, the optimiser, losses, teachers and validation stay in float32. So what is stored, and what is compared
    with the budget, is a float32 network. Micikevicius et al. 2018, "Mixed Precision Training"; bfloat16 has the range
    of float32, so that the loss needs no scale (Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning
    Training").
    """
    if precision == "float32":
        yield
        return
    plain, own = module.forward, vars(module).get("forward")

    def forward(*given: Any) -> Any:
        if not module.training:
            return plain(*given)
        with torch.autocast(device.type, torch.bfloat16):
            outputs = plain(*given)
        return outputs.float() if isinstance(outputs, Tensor) else [each.float() for each in outputs]

    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's malloc.h."""
LARGEST_BLOCK = 32 << 20
"""The largest limit that glibc takes for blocks of the heap, bytes; by itself it goes that far too."""
WHILE_TRAINING, AFTERWARDS = (1 << 31) - 1, 2 * LARGEST_BLOCK
"""Free bytes at the top that are not given back. The second is what glibc sets beside its largest block."""


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Inside, freed memory stays with the process; afterwards it is given back.

    glibc gives the top of its heap back when enough of it is free, and takes large blocks from the kernel one by one.
    Both limits are raised while a training lasts. Other C libraries are left as they are.
    """
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    if libc is None or not hasattr(libc, "gnu_get_libc_version"):
        yield
        return
    libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(TRIM_THRESHOLD, WHILE_TRAINING)
    try:
        yield
    finally:
        libc.mallopt(TRIM_THRESHOLD, AFTERWARDS)
        libc.malloc_trim(0)
