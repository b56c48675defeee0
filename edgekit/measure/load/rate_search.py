"""Search for the highest Poisson rate whose p99 stays within a bound.

Bisection finds a candidate, and further runs with other random arrival times confirm it. If one of these runs fails,
the candidate is lowered, as LoadGen's own search did (MLPerf Inference Rules 0.5, "LoadGen Operation"), each time by
twice as much. The true p99 rises with the rate, but on a busy machine, a single measured p99 may be too high. So
bisection counts a rate as too high only after it has failed twice.

By default a trial is much shorter than MLPerf requires, and a rate that rests on short trials is marked as short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edgekit.device.measure.conditions import Conditions
from edgekit.measure.load.scenarios import LoadResult

RATE_PRECISION = 0.05
CONFIRMATIONS = 3
MAX_TRIALS = 24
MIN_TRIAL_QUERIES = 100
"""With fewer queries, a p99 would be just the latency of the slowest one."""
SEARCH_SECONDS_SHARE = 0.25
"""The length of a trial that only finds a candidate, as a share of one that confirms it."""
LOWEST_RATE_SHARE = 0.1
"""The lowest rate that is tried, as a share of the closed-loop throughput.

Even a hundred arrivals take long at a lower rate, and little would be gained: at this rate the p99 is at most about
twice the time of a single answer (the wait in an M/D/1 queue), so a lower rate could at best halve it.
"""
TRIALS_BEFORE_GIVING_UP = 4
"""If the answers alone took longer than the bound in this many trials, a lower rate cannot help."""

TrialReason = Literal["search", "again", "confirm"]


@dataclass(frozen=True)
class RateTrial:
    """One run of the server scenario, and why it was made."""

    rate_per_s: float
    p99_ms: float
    service_p99_ms: float  # time of the answers alone, without waiting
    queries: int
    meets: bool
    reason: TrialReason
    short: bool
    why_short: str
    seen: Conditions
    disturbed: list[str]

    @classmethod
    def of(cls, result: LoadResult, rate_per_s: float, reason: TrialReason) -> RateTrial:
        return cls(
            rate_per_s=rate_per_s,
            p99_ms=result.latency["p99"].value_ms,
            service_p99_ms=result.service_p99_ms,
            queries=result.queries,
            meets=bool(result.meets),
            reason=reason,
            short=result.short,
            why_short=result.why_short,
            seen=result.seen,
            disturbed=result.disturbed,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RateTrial:
        return cls(**{**fields, "seen": Conditions(**fields["seen"])})


@dataclass(frozen=True)
class RateSearch:
    """The outcome of a search: the highest confirmed rate, None if there is none, and why the search ended."""

    p99_bound_ms: float
    rate_per_s: float | None
    why: str
    trials: tuple[RateTrial, ...]

    @property
    def short(self) -> bool:
        """Whether the result rests on less than MLPerf requires."""
        return any(trial.short for trial in self._rests_on)

    @property
    def why_short(self) -> str:
        """The reasons why the result is short, without repetitions."""
        reasons = (reason for trial in self._rests_on if trial.short for reason in trial.why_short.split("; "))
        return "; ".join(dict.fromkeys(reasons))

    @property
    def disturbed(self) -> list[str]:
        """One line that says how many trials were noisy, and why the first of them was; empty if none was noisy."""
        noisy = [trial.disturbed for trial in self.trials if trial.disturbed]
        return [f"{len(noisy)} of {len(self.trials)} trials, the first by: {'; '.join(noisy[0])}"] if noisy else []

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "short": self.short, "why_short": self.why_short, "disturbed": self.disturbed}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RateSearch:
        trials = tuple(RateTrial.from_json(each) for each in fields["trials"])
        return cls(fields["p99_bound_ms"], fields["rate_per_s"], fields["why"], trials)

    @property
    def _rests_on(self) -> tuple[RateTrial, ...]:
        """The trials that confirm the rate, or else the last trial, after which the search gave up."""
        if self.rate_per_s is None:
            return self.trials[-1:]
        return tuple(each for each in self.trials if (each.reason, each.rate_per_s) == ("confirm", self.rate_per_s))


RunTrial = Callable[[float, TrialReason, int], RateTrial]
"""Runs one trial of a rate. The number of the trial, from 0, decides the random arrival times."""


def find_highest_rate(
    attempt: RunTrial,
    capacity_per_s: float,
    p99_bound_ms: float,
    precision: float = RATE_PRECISION,
    confirmations: int = CONFIRMATIONS,
    most_trials: int = MAX_TRIALS,
) -> RateSearch:
    """Search for the highest rate below `capacity_per_s`, the throughput of a closed loop.

    No server can exceed that throughput for long. If the answers alone take longer than the bound, the search ends
    without trying lower rates.
    """
    trials: list[RateTrial] = []

    def meets(rate_per_s: float, reason: TrialReason) -> bool:
        trials.append(attempt(rate_per_s, reason, len(trials)))
        return trials[-1].meets

    def result(rate_per_s: float | None, reason: str) -> RateSearch:
        return RateSearch(p99_bound_ms, rate_per_s, reason, tuple(trials))

    service_ms = 1000 / capacity_per_s
    if service_ms > p99_bound_ms:
        return result(None, f"one answer alone takes {service_ms:.4g} ms, but the bound is {p99_bound_ms:g} ms")
    low, high = 0.0, capacity_per_s
    while high - low > precision * high and len(trials) + 1 < most_trials - confirmations:
        middle = (low + high) / 2
        if middle < LOWEST_RATE_SHARE * capacity_per_s:
            break
        if meets(middle, "search") or meets(middle, "again"):
            low = middle
        else:
            high = middle
        if (
            low == 0.0
            and len(trials) >= TRIALS_BEFORE_GIVING_UP
            and (least_ms := _service_p99_ms(trials)) > p99_bound_ms
        ):
            reason = f"one answer in a hundred takes {least_ms:.4g} ms by itself, but the bound is {p99_bound_ms:g} ms"
            return result(None, reason)
    if low == 0.0:
        return result(None, f"no rate of {high:.3g} per s or more met the bound")
    step = precision
    while len(trials) + confirmations <= most_trials:
        if all(meets(low, "confirm") for _ in range(confirmations)):
            return result(
                low, f"met in {confirmations} further trials; {_next_higher_rate(low, capacity_per_s, trials)}"
            )
        low *= 1 - step
        step = min(2 * step, 0.5)
    return result(
        None, f"no rate was confirmed within {most_trials} trials: the machine is too noisy for trials this short"
    )


def interrupted_search(p99_bound_ms: float, trials: tuple[RateTrial, ...]) -> RateSearch:
    """The result of a search whose process died after these trials; nothing was confirmed."""
    met_rates = [trial.rate_per_s for trial in trials if trial.meets]
    so_far = f"up to {max(met_rates):.4g} per s met the bound" if met_rates else "none met the bound"
    return RateSearch(p99_bound_ms, None, f"the search was cut off after trial {len(trials)}; so far {so_far}", trials)


def _service_p99_ms(trials: list[RateTrial]) -> float:
    """The lowest p99 of the answers alone, in ms, among the last trials. Noise can only make a p99 longer."""
    return min(trial.service_p99_ms for trial in trials[-TRIALS_BEFORE_GIVING_UP:])


def _next_higher_rate(confirmed_rate: float, capacity_per_s: float, trials: list[RateTrial]) -> str:
    failed_rates = [trial.rate_per_s for trial in trials if not trial.meets and trial.rate_per_s > confirmed_rate]
    if not failed_rates:
        return f"a closed loop reaches {capacity_per_s:.4g} per s"
    return f"{min(failed_rates):.4g} per s failed"
