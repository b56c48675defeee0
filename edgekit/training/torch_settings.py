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
    """Make computations inside the `with` block reproducible, and restore the settings of the process afterwards.

    The same seed, number of threads and machine give the same bits on the CPU. `threads` of 0 means all cores.
    """
    threads_before, deterministic_before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        torch.set_num_threads(threads or os.cpu_count() or 1)
        torch.use_deterministic_algorithms(device.type == "cpu")
        fill_before = set_fill_new_tensors(False)
        try:
            yield
        finally:
            torch.set_num_threads(threads_before)
            torch.use_deterministic_algorithms(deterministic_before)
            set_fill_new_tensors(fill_before)


def set_fill_new_tensors(fill: bool) -> bool:
    """Set whether torch's deterministic mode fills new tensors with NaN, and return what was set before.

    Filling them takes time and is not needed for reproducible results.
    """
    settings: Any = torch.utils.deterministic
    fill_before = bool(settings.fill_uninitialized_memory)
    settings.fill_uninitialized_memory = fill
    return fill_before


@contextmanager
def computing_in(precision: str, module: nn.Module, device: torch.device) -> Iterator[None]:
    """Let the module compute in `precision` inside the `with` block while it is in training mode.

    Only the forward and backward passes of convolutions and matrix products use the precision (torch.autocast). The
    outputs, weights, gradients, the optimizer, losses, teachers and validation stay in float32, so the network that is
    stored and compared with the budget is a float32 network. See Micikevicius et al. 2018, "Mixed Precision Training".
    bfloat16 has the range of float32, so the loss need not be scaled (Kalamkar et al. 2019, "A Study of BFLOAT16 for
    Deep Learning Training").
    """
    if precision == "float32":
        yield
        return
    original_forward, instance_forward = module.forward, vars(module).get("forward")

    def forward(*inputs: Any) -> Any:
        if not module.training:
            return original_forward(*inputs)
        with torch.autocast(device.type, torch.bfloat16):
            outputs = original_forward(*inputs)
        return outputs.float() if isinstance(outputs, Tensor) else [each.float() for each in outputs]

    module.forward = forward
    try:
        yield
    finally:
        if instance_forward is None:
            del module.forward
        else:
            module.forward = instance_forward


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt` in glibc's malloc.h."""
MAX_MMAP_THRESHOLD = 32 << 20
"""The largest mmap threshold that glibc accepts, in bytes. glibc does not raise the threshold above it by itself."""
TRAINING_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD = (1 << 31) - 1, 2 * MAX_MMAP_THRESHOLD
"""Free bytes at the top of the heap that are not returned. glibc's own value is twice the mmap threshold."""


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process inside the `with` block, and return it to the system afterwards.

    glibc returns the top of its heap to the kernel when enough of it is free, and requests each large block from the
    kernel separately. The thresholds for both are raised for a training, because its steps free and allocate the same
    amounts again and again. With other C libraries nothing is changed.
    """
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    if libc is None or not hasattr(libc, "gnu_get_libc_version"):
        yield
        return
    libc.mallopt(MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)
    libc.mallopt(TRIM_THRESHOLD, TRAINING_TRIM_THRESHOLD)
    try:
        yield
    finally:
        libc.mallopt(TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD)
        libc.malloc_trim(0)
