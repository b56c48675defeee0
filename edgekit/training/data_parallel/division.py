"""Divide batches into shards, and assign processes, threads and random seeds to them."""

from __future__ import annotations

import os

import numpy as np

MIN_SHARD_SAMPLES = 2
"""Smallest number of samples in a shard, because batch norms need at least two."""


def shard_slices(samples: int, shards: int) -> list[slice]:
    """Return the shards of a batch in order. Their sizes differ by at most 1; a small batch has fewer shards."""
    count = max(1, min(shards, samples // MIN_SHARD_SAMPLES))
    edges = [samples * index // count for index in range(count + 1)]
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def shard_owners(shards: int, processes: int) -> list[int]:
    """Return the process of each shard. Each process has consecutive shards, and process 0 always has shard 0."""
    return [shard * min(shards, processes) // shards for shard in range(shards)]


def threads_per_shard(threads: int, shards: int) -> int:
    """Return the threads of a shard, which do not depend on the number of processes. `threads` of 0 means all cores."""
    return max(1, (threads or os.cpu_count() or 1) // shards)


def shard_seed(seed: int, step: int, shard: int) -> int:
    """Return the seed of torch's generator (for example for dropout) for one shard of one step."""
    return int(np.random.SeedSequence((seed, step, shard)).generate_state(1, np.uint64)[0] >> np.uint64(1))
