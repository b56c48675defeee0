"""Memory that is kept for the next step: it is not requested from the kernel again, and is returned afterwards."""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from edgekit.training import torch_settings

BLOCKS, BLOCK_BYTES = 4, 25 << 20
PAGE = resource.getpagesize()
PAGES = BLOCKS * BLOCK_BYTES // PAGE


def step() -> None:
    """Take 100 MB from the C library, write on them, and free them."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(ctypes.c_size_t(BLOCK_BYTES)) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in blocks:
        libc.free(block)


def faults_of(steps: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def measured() -> tuple[int, int, int, int]:
    """Page faults of five steps inside and afterwards, and resident pages inside and afterwards."""
    with torch_settings.keep_freed_memory():
        step()
        within = faults_of(5)
        inside = resident_pages()
    outside = resident_pages()
    return within, faults_of(5), inside, outside


def measured_after_an_error() -> tuple[int, int]:
    """Resident pages inside and afterwards."""
    with suppress(ValueError), torch_settings.keep_freed_memory():
        step()
        inside = resident_pages()
        raise ValueError
    return inside, resident_pages()


@pytest.fixture
def fresh() -> Iterator[ProcessPoolExecutor]:
    """A process of its own: glibc raises its limits by itself in one that has freed large blocks before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_freed_memory_is_used_again_while_a_training_lasts_and_given_back_afterwards(
    fresh: ProcessPoolExecutor,
) -> None:
    within, afterwards, inside, outside = fresh.submit(measured).result()
    assert within < PAGES // 2
    assert outside < inside - PAGES // 2
    assert afterwards > 2 * PAGES


def test_it_is_given_back_after_an_error_too(fresh: ProcessPoolExecutor) -> None:
    inside, outside = fresh.submit(measured_after_an_error).result()
    assert outside < inside - PAGES // 2
