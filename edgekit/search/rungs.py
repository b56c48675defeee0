"""The rungs of a trial, cheap to dear: who goes on, and in which words the others are told why not.

1. `shape`: the plan is accepted, the network can be built, and its smallest possible file is within the size.
2. `untrained`: its files, untrained, are timed; one must keep the limits. Only where the budget has such a limit.
3. `few_epochs`: the student is trained for a quarter of its epochs, taught by the baseline with soft targets alone.
   It stops where another trial is better for sure (`dominated_by`). Only where a quarter is two epochs or more.
4. `all`: every stage up to `convert`, then the round of measuring.

The first and the third look at no clock, so they decide alike everywhere. What the second decides is measured once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgekit.core.config import Budget
from edgekit.core.rows.study import Rung

RUNGS: tuple[Rung, ...] = ("shape", "untrained", "few_epochs", "all")
SHARE = 4
"""A quarter of the epochs, rounded up."""
LEAST_EPOCHS = 2
"""Of which a quarter says something."""
MARGIN = 0.03
"""Of accuracy, a fraction: what a trial must lag behind to be stopped. Few epochs rank networks only roughly."""
WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "int8": 1, "w8": 1, "dynamic": 1}
"""Of one weight in a file, at least; biases and the graph come on top."""


@dataclass(frozen=True)
class Size:
    """What a network is without any training: parameters and multiply-adds of the student and of its pruned form."""

    parameters: int
    macs: int
    pruned_parameters: int
    pruned_macs: int


@dataclass(frozen=True)
class Standing:
    """A trial after a few epochs: its accuracy with both ends (fractions), and what its pruned form needs."""

    number: int
    accuracy: float
    low: float
    high: float
    parameters: int
    macs: int


@dataclass(frozen=True)
class File:
    """A file of an untrained network, with the interval of its p50."""

    target: str
    bytes: int
    low_ms: float | None


def few_epochs(epochs: int) -> int:
    """The epochs of the third rung; 0 where they would be too few to say anything."""
    few = -(-epochs // SHARE)
    return few if few >= LEAST_EPOCHS and few < epochs else 0


def least_bytes(size: Size, precisions: Iterable[str]) -> int:
    """The fewest bytes that a file of the network can have: one weight each, in the smallest precision."""
    return min(size.parameters, size.pruned_parameters) * min(WEIGHT_BYTES[name] for name in precisions)


def over_size(size: Size, precisions: Sequence[str], budget: Budget) -> str:
    """Why the first rung refuses it; empty where it does not."""
    least = least_bytes(size, precisions)
    if budget.size_bytes is None or least <= budget.size_bytes:
        return ""
    return f"its weights alone need {least:,} bytes, over {budget.size_bytes:,} (budget.size_bytes)"


def over_limits(files: Sequence[File], targets: Sequence[str], budget: Budget) -> tuple[str, dict[str, float]]:
    """Why the second rung refuses it, and by how much it is over; empty where each target has a file within limits.

    A latency is over its limit where its whole interval is. A file without one was not timed, for its bytes are over.
    """
    reasons, over = [], dict[str, float]()
    for target in targets:
        of = [file for file in files if file.target == target]
        if not of:
            reasons.append(f"{target} takes no file of it")
            continue
        small = [file for file in of if budget.size_bytes is None or file.bytes <= budget.size_bytes]
        if not small and budget.size_bytes is not None:
            least = min(file.bytes for file in of)
            over["size_bytes"] = max(over.get("size_bytes", 0.0), float(least - budget.size_bytes))
            reasons.append(f"its smallest {target} file has {least:,} bytes, over {budget.size_bytes:,}")
            continue
        limit_ms, lows = budget.latency_p50_ms, [file.low_ms for file in small if file.low_ms is not None]
        if limit_ms is not None and lows and min(lows) > limit_ms:
            over["latency_p50_ms"] = max(over.get("latency_p50_ms", 0.0), min(lows) - limit_ms)
            reasons.append(f"untrained, its p50 on {target} is at least {min(lows):.3g} ms, over {limit_ms:g}")
    return "; ".join(reasons), over


def dominated_by(one: Standing, others: Iterable[Standing]) -> Standing | None:
    """The trial that stops it: more accurate for sure, with no more parameters and multiply-adds.

    For sure: by more than `MARGIN`, and the whole interval of its accuracy is above that of the other. Of several that
    stop it the most accurate, then the first.
    """
    better = [
        other
        for other in others
        if other.number != one.number
        and other.accuracy > one.accuracy + MARGIN
        and other.low > one.high
        and other.parameters <= one.parameters
        and other.macs <= one.macs
    ]
    return min(better, key=lambda other: (-other.accuracy, other.number)) if better else None


def stopped(one: Standing, by: Standing, epochs: int) -> str:
    """The reason of a trial that the third rung stops."""
    return (
        f"after {epochs} epochs trial {by.number} has {by.accuracy:.1%} and this one {one.accuracy:.1%}, "
        "with no fewer parameters and multiply-adds"
    )
