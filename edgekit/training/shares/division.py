"""Which samples are in which share, which process computes it, with how many threads and which random numbers."""

from __future__ import annotations

import os

import numpy as np

LEAST = 2
"""Samples of a share: batch normalisation has no variance of one."""


def shares_of(samples: int, shares: int) -> list[slice]:
    """The shares of a batch, in order; their sizes differ by 1 at most, and a small batch has fewer shares."""
    count = max(1, min(shares, samples // LEAST))
    edges = [samples * place // count for place in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def owners(shares: int, processes: int) -> list[int]:
    """The process of each share: neighbours stay together, so that process 0 always has share 0."""
    return [share * min(shares, processes) // shares for share in range(shares)]


def threads_of_a_share(threads: int, shares: int) -> int:
    """A part of the training's `threads` (0: all cores): it follows from the key, not from the number of processes."""
    return max(1, (threads or os.cpu_count() or 1) // shares)


def seed_of(seed: int, step: int, share: int) -> int:
    """The seed of torch's generator for one share of one step, as of dropout."""
    return int(np.random.SeedSequence((seed, step, share)).generate_state(1, np.uint64)[0] >> np.uint64(1))
