"""The fidelities at which a trial is evaluated, from cheap to expensive, and the reasons for ending it early.

1. `shape`: the plan must be valid, the network must be buildable, and its smallest possible file must meet the limit on
   size.
2. `untrained`: the untrained network is converted, and timed if the budget limits the latency. On each target, at least
   one file must meet the limits on size and latency. This fidelity is skipped if the budget limits neither.
3. `few_epochs`: the student is trained for a quarter of its epochs, taught by the baseline with soft targets alone. The
   trial is stopped if another trial is significantly better (see `dominated_by`). This fidelity is skipped if a quarter
   is fewer than two epochs.
4. `all`: all stages up to `convert` are run, and the files are timed.

The first and the third fidelity use no timings, so they decide in the same way on every machine. The second does, but
each file is timed only once in a study, so a study that is continued decides as before.
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
"""A trial is stopped only if another trial's accuracy (a fraction) is higher by more than this.

The margin is needed because a few epochs rank networks only roughly.
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
"""The fewest bytes that one weight takes in a file, without biases and the graph."""


@dataclass(frozen=True)
class NetworkSize:
    """The parameters and multiply-adds of a student and of its pruned form, which are known before any training."""

    parameters: int
    macs: int
    pruned_parameters: int
    pruned_macs: int


@dataclass(frozen=True)
class EarlyResult:
    """The result of a trial after a few epochs.

    `accuracy` and its bounds `low` and `high` are fractions; `parameters` and `macs` are those of the pruned network.
    """

    number: int
    accuracy: float
    low: float
    high: float
    parameters: int
    macs: int


@dataclass(frozen=True)
class UntrainedFile:
    """A file of an untrained network, with the lower bound of its p50 (None if it was not timed).

    `ratio_lows` has the lower bound of its latency ratio to the reference of a limit, by the name of the reference.
    """

    target: str
    bytes: int
    low_ms: float | None
    ratio_lows: Mapping[str, float] = field(default_factory=dict)


def reduced_epochs(epochs: int) -> int:
    """The number of epochs at the third fidelity; 0 if that would be too few to say anything, or not fewer than all."""
    reduced = -(-epochs // EPOCH_DIVISOR)
    return reduced if reduced >= MIN_EPOCHS and reduced < epochs else 0


def min_file_bytes(size: NetworkSize, precisions: Iterable[str]) -> int:
    """The fewest bytes that a file of the network can have: those of its weights alone, in the smallest precision."""
    return int(min(size.parameters, size.pruned_parameters) * min(MIN_WEIGHT_BYTES[name] for name in precisions))


def size_violation(
    size: NetworkSize,
    precisions: Sequence[str],
    budget: Budget,
    targets: Sequence[str] = (),
    baseline: Mapping[str, int] = {},
) -> str:
    """The reason why the first fidelity rejects the network as too large; empty if it does not.

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
    """The number of bytes by which the weights alone exceed the size limit; 0 if they do not exceed it."""
    excess = _largest_excess(size, precisions, budget, targets, baseline)
    return excess[0] if excess else 0


def limit_violations(
    files: Sequence[UntrainedFile], targets: Sequence[str], budget: Budget, baseline: Mapping[str, int] = {}
) -> tuple[str, dict[str, float]]:
    """The reason why the second fidelity rejects a network, and by how much the network exceeds each limit.

    Both are empty if each target has a file within the limits. A latency exceeds its limit if its whole interval lies
    above the limit. A file without a latency was not timed, because it is too large.
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
    """The largest number of bytes by which the weights exceed a target's size limit, with a description.

    None if they exceed no limit.
    """
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
    """The name of the latency limit that even the fastest file significantly exceeds, the excess, and a description.

    None if the limit is met, if there is no limit, or if no file was timed.
    """
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
    """Find a trial that is significantly more accurate than `trial` without needing more parameters or multiply-adds.

    Its accuracy must be higher by more than `STOP_MARGIN`, and its whole interval must lie above that of `trial`. If
    several trials qualify, the most accurate one is returned, and of equally accurate ones the earliest. None if no
    trial qualifies.
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
        f"after {epochs} epochs its accuracy is {trial.accuracy:.1%}, but trial {better_trial.number} reaches "
        f"{better_trial.accuracy:.1%} and needs no more parameters or multiply-adds"
    )
