"""The fidelities at which a trial is evaluated, from cheap to expensive, and the reasons for ending it early.

1. `shape`: the plan is valid, the network can be built, and its smallest possible file meets the size limit.
2. `untrained`: the files of the untrained network are timed, and one must meet the limits. Only if the budget has such
   a limit.
3. `few_epochs`: the student is trained for a quarter of its epochs, taught by the baseline with soft targets alone. The
   trial stops if another one is significantly better (`dominated_by`). Only if a quarter is at least two epochs.
4. `all`: every stage up to `convert`, then a round of measurement.

The first and third do not depend on any timing, so they decide alike on every machine. The second decides from
measurements, which are made only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.core.budget import VariantLimits
from edgekit.core.config import Budget
from edgekit.core.schema.study import Fidelity

FIDELITIES: tuple[Fidelity, ...] = ("shape", "untrained", "few_epochs", "all")
EPOCH_DIVISOR = 4
"""The third fidelity trains for a quarter of the epochs, rounded up."""
MIN_EPOCHS = 2
"""Fewer epochs would say nothing about a network."""
STOP_MARGIN = 0.03
"""How far the accuracy (a fraction) of a trial must lag behind to be stopped.

A few epochs rank networks only roughly.
"""
MIN_WEIGHT_BYTES = {
    "fp32": 4,
    "fp16": 2,
    "int8": 1,
    "w8": 1,
    "dynamic": 1,
    "int4": 0.5,
    "int4_dense": 0.5,
    "int16x8": 1,
}
"""The fewest bytes that one weight takes in a file; biases and the graph come on top."""


@dataclass(frozen=True)
class NetworkSize:
    """The size of a network, known before training: the student's parameters and multiply-adds, and the pruned ones."""

    parameters: int
    macs: int
    pruned_parameters: int
    pruned_macs: int


@dataclass(frozen=True)
class EarlyResult:
    """A trial after a few epochs: its accuracy with both bounds (fractions), and the cost of its pruned form."""

    number: int
    accuracy: float
    low: float
    high: float
    parameters: int
    macs: int


@dataclass(frozen=True)
class UntrainedFile:
    """A file of an untrained network: the lower bound of its p50, and of its ratio to each reference of a limit."""

    target: str
    bytes: int
    low_ms: float | None
    ratio_lows: Mapping[str, float] = field(default_factory=dict)


def reduced_epochs(epochs: int) -> int:
    """The number of epochs of the third fidelity; 0 if they would be too few to say anything."""
    reduced = -(-epochs // EPOCH_DIVISOR)
    return reduced if reduced >= MIN_EPOCHS and reduced < epochs else 0


def min_file_bytes(size: NetworkSize, precisions: Iterable[str]) -> int:
    """The fewest bytes that a file of the network can have: its weights in the smallest precision."""
    return int(min(size.parameters, size.pruned_parameters) * min(MIN_WEIGHT_BYTES[name] for name in precisions))


def size_violation(
    size: NetworkSize,
    precisions: Sequence[str],
    budget: Budget,
    targets: Sequence[str] = (),
    baseline: Mapping[str, int] = {},
) -> str:
    """Why the network is too large at the first fidelity; empty if it is not.

    `baseline` has the size of the baseline's float file, by target.
    """
    excess = _largest_excess(size, precisions, budget, targets, baseline)
    return excess[1] if excess else ""


def size_excess_bytes(
    size: NetworkSize,
    precisions: Sequence[str],
    budget: Budget,
    targets: Sequence[str] = (),
    baseline: Mapping[str, int] = {},
) -> int:
    """By how many bytes the weights alone exceed the limit; 0 if they do not."""
    excess = _largest_excess(size, precisions, budget, targets, baseline)
    return excess[0] if excess else 0


def limit_violations(
    files: Sequence[UntrainedFile], targets: Sequence[str], budget: Budget, baseline: Mapping[str, int] = {}
) -> tuple[str, dict[str, float]]:
    """Why the second fidelity rejects a network, and by how much it exceeds each limit.

    Both are empty if each target has a file within the limits. A latency exceeds its limit if its whole interval does.
    A file without a latency was not timed, because it is too large.
    """
    reasons, excess = [], dict[str, float]()
    for target in targets:
        target_files = [file for file in files if file.target == target]
        if not target_files:
            reasons.append(f"it could not be converted for {target}")
            continue
        limits = budget.limits(target)
        limit_bytes = limits.max_bytes(baseline.get(target))
        small_files = [file for file in target_files if limit_bytes is None or file.bytes <= limit_bytes]
        if not small_files and limit_bytes is not None:
            smallest_bytes = min(file.bytes for file in target_files)
            excess["size_bytes"] = max(excess.get("size_bytes", 0.0), float(smallest_bytes - limit_bytes))
            limit_text = limits.size_text(baseline.get(target), unit="")
            reasons.append(f"its smallest {target} file has {smallest_bytes:,} bytes, over {limit_text}")
            continue
        if violation := _latency_violation(small_files, limits):
            name, amount, reason = violation
            excess[name] = max(excess.get(name, 0.0), amount)
            reasons.append(f"untrained, its p50 on {target} is at least {reason}")
    return "; ".join(reasons), excess


def _largest_excess(
    size: NetworkSize, precisions: Sequence[str], budget: Budget, targets: Sequence[str], baseline: Mapping[str, int]
) -> tuple[int, str] | None:
    """The excess of the tightest size limit of the targets, with a description."""
    min_bytes, excesses = min_file_bytes(size, precisions), list[tuple[int, str]]()
    for target in targets or ("",):
        limits = budget.limits(target)
        limit_bytes = limits.max_bytes(baseline.get(target))
        if limit_bytes is not None and min_bytes > limit_bytes:
            limit_text = limits.size_text(baseline.get(target), unit="")
            name = "budget.size_bytes" if limits.size is None else "budget.size"
            excesses.append(
                (min_bytes - limit_bytes, f"its weights alone need {min_bytes:,} bytes, over {limit_text} ({name})")
            )
    return max(excesses, default=None)


def _latency_violation(files: Sequence[UntrainedFile], limits: VariantLimits) -> tuple[str, float, str] | None:
    """The latency limit that even the fastest file significantly exceeds, by how much, and a description."""
    if limits.latency_p50 is not None:
        reference, limit = limits.latency_p50.of, limits.latency_p50.ratio
        ratios = [file.ratio_lows[reference] for file in files if reference in file.ratio_lows]
        if ratios and min(ratios) > limit:
            return "latency_p50", min(ratios) - limit, f"{min(ratios):.3g} of that of {reference}, over {limit:g}"
        return None
    limit_ms, low_bounds_ms = limits.latency_p50_ms, [file.low_ms for file in files if file.low_ms is not None]
    if limit_ms is not None and low_bounds_ms and min(low_bounds_ms) > limit_ms:
        return "latency_p50_ms", min(low_bounds_ms) - limit_ms, f"{min(low_bounds_ms):.3g} ms, over {limit_ms:g}"
    return None


def dominated_by(trial: EarlyResult, others: Iterable[EarlyResult]) -> EarlyResult | None:
    """The trial that stops this one: significantly more accurate, with no more parameters and multiply-adds.

    It must be more accurate by more than `STOP_MARGIN`, and its whole interval must lie above that of this trial. If
    there are several, the most accurate is returned, then the first.
    """
    better = [
        other
        for other in others
        if other.number != trial.number
        and other.accuracy > trial.accuracy + STOP_MARGIN
        and other.low > trial.high
        and other.parameters <= trial.parameters
        and other.macs <= trial.macs
    ]
    return min(better, key=lambda other: (-other.accuracy, other.number)) if better else None


def stop_reason(trial: EarlyResult, better_trial: EarlyResult, epochs: int) -> str:
    """The reason for stopping a trial at the third fidelity."""
    return (
        f"after {epochs} epochs trial {better_trial.number} has {better_trial.accuracy:.1%} and this one "
        f"{trial.accuracy:.1%}, "
        "with no fewer parameters and multiply-adds"
    )
