"""Rate: the highest Poisson rate whose p99 stays within a bound.

Halving the interval finds a candidate, and further runs with other arrivals confirm it; where one of them fails, the
candidate steps down, as LoadGen's own search did (MLPerf Inference Rules 0.5, "LoadGen Operation"), each time twice as
far. p99 rises with the rate, but one measured on a busy machine need not: a rate counts as too high only after a second
failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

PRECISION = 0.05
CONFIRMATIONS = 3
MOST_TRIALS = 24

Reason = Literal["search", "again", "confirm"]


@dataclass(frozen=True)
class Trial:
    """One run of the server scenario and why it was made."""

    rate_per_s: float
    p99_ms: float
    queries: int
    meets: bool
    reason: Reason = "search"


@dataclass(frozen=True)
class Found:
    """`rate_per_s` is the highest rate that was confirmed, None where none was; `why` says how it ended."""

    p99_bound_ms: float
    rate_per_s: float | None
    why: str
    trials: tuple[Trial, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Found:
        return cls(**{**fields, "trials": tuple(Trial(**each) for each in fields["trials"])})


Try = Callable[[float, Reason, int], Trial]
"""Makes one trial of a rate; the number, from 0, makes its arrivals others than those before."""


def find(
    attempt: Try,
    most_per_s: float,
    p99_bound_ms: float,
    precision: float = PRECISION,
    confirmations: int = CONFIRMATIONS,
    most_trials: int = MOST_TRIALS,
) -> Found:
    """Search below `most_per_s`, what a closed loop is answered: no open one can be answered more often for long."""
    trials: list[Trial] = []

    def meets(rate_per_s: float, reason: Reason) -> bool:
        trials.append(attempt(rate_per_s, reason, len(trials)))
        return trials[-1].meets

    def done(rate_per_s: float | None, why: str) -> Found:
        return Found(p99_bound_ms, rate_per_s, why, tuple(trials))

    low, high = 0.0, most_per_s
    while high - low > precision * high and len(trials) + 1 < most_trials - confirmations:
        middle = (low + high) / 2
        if meets(middle, "search") or meets(middle, "again"):
            low = middle
        else:
            high = middle
    if low == 0.0:
        return done(None, f"no rate from {high:.3g} per s on met the bound")
    step = precision
    while len(trials) + confirmations <= most_trials:
        if all(meets(low, "confirm") for _ in range(confirmations)):
            return done(low, f"met in {confirmations} further trials; {_nearest(low, most_per_s, trials)}")
        low *= 1 - step
        step = min(2 * step, 0.5)
    return done(None, f"no rate was confirmed within {most_trials} trials: the machine is too noisy for so short ones")


def _nearest(low: float, most_per_s: float, trials: list[Trial]) -> str:
    above = [trial.rate_per_s for trial in trials if not trial.meets and trial.rate_per_s > low]
    if not above:
        return f"a closed loop is answered {most_per_s:.4g} per s"
    return f"{min(above):.4g} per s did not"
