"""The limits of the budget as candidates are held to them, file by file, each by the limits of its target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from edgekit.core.budget import BASELINE
from edgekit.core.config import Budget
from edgekit.core.errors import ConversionError
from edgekit.device.measure import intervals
from edgekit.measure.latency import CONFIDENCE, Timed

Beside = Sequence[Timed]
"""References of relative limits, timed in the same rounds: rivals by file name, and the float baseline by target."""


def within_size(files: Sequence[Timed], budget: Budget, beside: Beside) -> list[Timed]:
    """The files that are small enough for their target."""
    most = [budget.limits(file.target).most_bytes(_baseline_bytes(file.target, beside)) for file in files]
    return [file for file, limit in zip(files, most, strict=True) if limit is None or file.bytes <= limit]


def in_time(files: Sequence[Timed], budget: Budget, beside: Beside) -> bool:
    """One file meets both limits; as in the benchmark, a latency breaks its limit where its whole interval does."""
    return any(
        not budget.limits(file.target).is_late(file.low_ms, partial(_ratio_low, file, beside))
        for file in within_size(files, budget, beside)
    )


def size_words(file: Timed, budget: Budget, beside: Beside, unit: str = " bytes") -> str:
    """The limit of a file's bytes."""
    return budget.limits(file.target).size_words(_baseline_bytes(file.target, beside), unit)


def too_slow(files: Sequence[Timed], budget: Budget, beside: Beside) -> str:
    """Why a candidate of these files is not within the budget, where one of them is small enough."""
    latencies = {file.target: budget.limits(file.target).latency_words() for file in files}
    sizes = {size_words(file, budget, beside) for file in files}
    words = next(iter(latencies.values()))
    if len(set(latencies.values())) > 1:
        words = ", ".join(f"{words} ({target})" for target, words in latencies.items() if words)
    small = "" if sizes == {""} else " of every file that is small enough"
    if len(sizes) == 1 and sizes != {""}:
        small = f" of every file of {sizes.pop()} or less"
    return f"p50{small} is over {words} on every target"


def referred(of: str, target: str, beside: Beside) -> Timed | None:
    """The reference of that name, for a file of the target."""
    return next((each for each in beside if each.model == of and (of != BASELINE or each.target == target)), None)


def _ratio_low(file: Timed, beside: Beside, of: str) -> float:
    """Lower end of the interval of its p50 over that of the reference, round by round."""
    reference = referred(of, file.target, beside)
    if reference is None:
        raise ConversionError(
            f"budget: a limit of {file.target} is relative to {of}, which could not be timed there; give "
            f"{file.target} an absolute limit in budget.targets"
        )
    own, theirs = (np.asarray(each.round_p50s_ms) for each in (file, reference))
    return intervals.ratio(own, theirs, len(own), CONFIDENCE).low


def _baseline_bytes(target: str, beside: Beside) -> int | None:
    found = referred(BASELINE, target, beside)
    return found.bytes if found else None
