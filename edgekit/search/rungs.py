"""The rungs of a trial, cheap to dear: who goes on, and in which words the others are told why not.

1. `shape`: the plan is accepted, the network can be built, and its smallest possible file is within the size.
2. `untrained`: its files, untrained, are timed; one must keep the limits. Only where the budget has such a limit.
3. `few_epochs`: the student is trained for a quarter of its epochs, taught by the baseline with soft targets alone.
   It stops where another trial is better for sure (`dominated_by`). Only where a quarter is two epochs or more.
4. `all`: every stage up to `convert`, then the round of measuring.

The first and the third look at no clock, so they decide alike everywhere. What the second decides is measured once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.core.budget import VariantLimits
from edgekit.core.config import Budget
from edgekit.core.schema.study import Fidelity

RUNGS: tuple[Fidelity, ...] = ("shape", "untrained", "few_epochs", "all")
SHARE = 4
"""A quarter of the epochs, rounded up."""
LEAST_EPOCHS = 2
"""Of which a quarter says something."""
MARGIN = 0.03
"""Of accuracy, a fraction: what a trial must lag behind to be stopped. Few epochs rank networks only roughly."""
WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "int8": 1, "w8": 1, "dynamic": 1, "int4": 0.5, "int4_dense": 0.5, "int16x8": 1}
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
    """A file of an untrained network: the lower end of its p50, and of its ratio to each reference of a limit."""

    target: str
    bytes: int
    low_ms: float | None
    ratio_lows: Mapping[str, float] = field(default_factory=dict)


def few_epochs(epochs: int) -> int:
    """The epochs of the third rung; 0 where they would be too few to say anything."""
    few = -(-epochs // SHARE)
    return few if few >= LEAST_EPOCHS and few < epochs else 0


def least_bytes(size: Size, precisions: Iterable[str]) -> int:
    """The fewest bytes that a file of the network can have: one weight each, in the smallest precision."""
    return int(min(size.parameters, size.pruned_parameters) * min(WEIGHT_BYTES[name] for name in precisions))


def over_size(
    size: Size, precisions: Sequence[str], budget: Budget, targets: Sequence[str] = (), baseline: Mapping[str, int] = {}
) -> str:
    """Why the first rung refuses it; empty where it does not. `baseline`: bytes of its float file, by target."""
    over = _most_over(size, precisions, budget, targets, baseline)
    return over[1] if over else ""


def size_excess(
    size: Size, precisions: Sequence[str], budget: Budget, targets: Sequence[str] = (), baseline: Mapping[str, int] = {}
) -> int:
    """By how many bytes its weights alone are over; 0 where they are not."""
    over = _most_over(size, precisions, budget, targets, baseline)
    return over[0] if over else 0


def over_limits(
    files: Sequence[File], targets: Sequence[str], budget: Budget, baseline: Mapping[str, int] = {}
) -> tuple[str, dict[str, float]]:
    """Why the second rung refuses it, and by how much it is over; empty where each target has a file within limits.

    A latency is over its limit where its whole interval is. A file without one was not timed, for its bytes are over.
    """
    reasons, over = [], dict[str, float]()
    for target in targets:
        of = [file for file in files if file.target == target]
        if not of:
            reasons.append(f"{target} takes no file of it")
            continue
        limits = budget.limits(target)
        most = limits.max_bytes(baseline.get(target))
        small = [file for file in of if most is None or file.bytes <= most]
        if not small and most is not None:
            least = min(file.bytes for file in of)
            over["size_bytes"] = max(over.get("size_bytes", 0.0), float(least - most))
            words = limits.size_text(baseline.get(target), unit="")
            reasons.append(f"its smallest {target} file has {least:,} bytes, over {words}")
            continue
        if found := _too_slow(small, limits):
            name, by, reason = found
            over[name] = max(over.get(name, 0.0), by)
            reasons.append(f"untrained, its p50 on {target} is at least {reason}")
    return "; ".join(reasons), over


def _most_over(
    size: Size, precisions: Sequence[str], budget: Budget, targets: Sequence[str], baseline: Mapping[str, int]
) -> tuple[int, str] | None:
    """The excess of the tightest limit among the targets, with its words."""
    least, found = least_bytes(size, precisions), list[tuple[int, str]]()
    for target in targets or ("",):
        limits = budget.limits(target)
        most = limits.max_bytes(baseline.get(target))
        if most is not None and least > most:
            words = limits.size_text(baseline.get(target), unit="")
            name = "budget.size_bytes" if limits.size is None else "budget.size"
            found.append((least - most, f"its weights alone need {least:,} bytes, over {words} ({name})"))
    return max(found, default=None)


def _too_slow(files: Sequence[File], limits: VariantLimits) -> tuple[str, float, str] | None:
    """The constraint that the fastest of these files breaks for sure, by how much, and in words."""
    if limits.latency_p50 is not None:
        of, most = limits.latency_p50.of, limits.latency_p50.ratio
        ratios = [file.ratio_lows[of] for file in files if of in file.ratio_lows]
        if ratios and min(ratios) > most:
            return "latency_p50", min(ratios) - most, f"{min(ratios):.3g} of that of {of}, over {most:g}"
        return None
    limit_ms, lows = limits.latency_p50_ms, [file.low_ms for file in files if file.low_ms is not None]
    if limit_ms is not None and lows and min(lows) > limit_ms:
        return "latency_p50_ms", min(lows) - limit_ms, f"{min(lows):.3g} ms, over {limit_ms:g}"
    return None


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
