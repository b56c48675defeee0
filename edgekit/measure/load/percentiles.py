"""Percentiles of latencies with bootstrap intervals.

Blocks of consecutive queries are resampled, because neighbours in a queue are alike (block bootstrap, Künsch 1989). The
percentile is computed over all queries of the drawn blocks, since a single block is too short to have a p99.
"""

from __future__ import annotations

import numpy as np

from edgekit.device.measure import conditions
from edgekit.device.measure.bench import PERCENTILES, latency_summary
from edgekit.device.measure.intervals import MIN_ROUNDS, SEED, tail_probability
from edgekit.measure.load.scenarios import Percentile

BLOCKS = 30
LEAST_IN_BLOCK = 10
LEAST_IN_ROUND = 20
"""The fewest queries in a round. `MAX_NOISE` was chosen for the benchmark's rounds, which have this many calls too."""
RESAMPLES = 1000
STEPS = 5000
"""The number of bins into which the sorted latencies are divided, with equally many queries in each.

50 of these bins cover the slowest 1 %.
"""
_AT_ONCE = 250


def percentiles(latencies_ms: np.ndarray, confidence: float) -> dict[str, Percentile]:
    """p50, p90, p95 and p99 with their intervals, from latencies (n,) in the order of their queries, n > 0."""
    figures = latency_summary(latencies_ms)
    intervals = _intervals(latencies_ms, confidence)
    return {f"p{rank}": Percentile(figures[f"p{rank}_ms"], *intervals[rank]) for rank in PERCENTILES}


def noise(service_ms: np.ndarray) -> float | None:
    """How much the medians of rounds of consecutive queries vary (see `conditions.noise`); None if queries are too few.

    `service_ms` (n,) are the times of the answers without waiting, in the order of the queries. Latencies cannot be
    used, because waiting in a queue makes them vary on any machine.
    """
    rounds = min(BLOCKS, len(service_ms) // LEAST_IN_ROUND)
    return conditions.noise(service_ms[: len(service_ms) // rounds * rounds], rounds) if rounds else None


def _intervals(latencies_ms: np.ndarray, confidence: float) -> dict[int, tuple[float | None, float | None]]:
    blocks = min(BLOCKS, len(latencies_ms) // LEAST_IN_BLOCK)
    if blocks < MIN_ROUNDS:
        return dict.fromkeys(PERCENTILES, (None, None))
    counts, values_ms = _binned(latencies_ms, blocks)
    generator, share = np.random.default_rng(SEED), tail_probability(confidence, blocks)
    drawn: dict[int, list[np.ndarray]] = {rank: [] for rank in PERCENTILES}
    for _ in range(0, RESAMPLES, _AT_ONCE):
        times = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_AT_ONCE)
        below = np.cumsum(times @ counts, axis=1)
        for rank, draws in drawn.items():
            draws.append(values_ms[(below < rank / 100 * below[:, -1:]).sum(axis=1)])
    return {rank: _quantiles(np.concatenate(draws), share) for rank, draws in drawn.items()}


def _binned(latencies_ms: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Count the queries of each block in each bin (blocks, bins), and find the largest latency in each bin (bins,)."""
    count = len(latencies_ms)
    order = np.argsort(latencies_ms, kind="stable")
    bin_of_rank = np.arange(count) * min(STEPS, count) // count
    bins = np.empty(count, dtype=np.int64)
    bins[order] = bin_of_rank
    block = np.arange(count) * blocks // count
    counts = np.zeros((blocks, int(bin_of_rank[-1]) + 1))
    np.add.at(counts, (block, bins), 1)
    values = latencies_ms[order][np.searchsorted(bin_of_rank, np.arange(counts.shape[1]), side="right") - 1]
    return counts, values


def _quantiles(values: np.ndarray, share: float) -> tuple[float, float]:
    low, high = np.quantile(values, (share, 1 - share))
    return float(low), float(high)
