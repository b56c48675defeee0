"""Search for the highest Poisson rate whose p99 stays within a bound.

Halving the interval finds a candidate, and further runs with other arrivals confirm it; where one of them fails, the
candidate steps down, as LoadGen's own search did (MLPerf Inference Rules 0.5, "LoadGen Operation"), each time twice as
far. p99 rises with the rate, but one measured on a busy machine need not: a rate counts as too high only after a second
failure.

A trial is by default far shorter than MLPerf asks for; a rate that rests on short trials is marked short.
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
"""At least: of fewer, a p99 is only the slowest."""
SEARCH_SECONDS_SHARE = 0.25
"""How long a trial lasts that only finds a candidate, as a share of one that confirms it."""
LOWEST_RATE_SHARE = 0.1
"""Share of the closed-loop throughput: the lowest rate that is tried. A hundred arrivals take long there, and a p99 is
down to twice what an answer takes alone (the wait in an M/D/1 queue), which no lower rate would halve."""
TRIALS_BEFORE_GIVING_UP = 4
"""After so many trials in which the answers alone took longer than the bound, a lower rate cannot help."""

TrialReason = Literal["search", "again", "confirm"]


@dataclass(frozen=True)
class RateTrial:
    """One run of the server scenario and why it was made."""

    rate_per_s: float
    p99_ms: float
    service_p99_ms: float  # what an answer itself takes, at any rate
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
    """`rate_per_s` is the highest rate that was confirmed, None where none was; `why` says how it ended."""

    p99_bound_ms: float
    rate_per_s: float | None
    why: str
    trials: tuple[RateTrial, ...]

    @property
    def short(self) -> bool:
        """Whether what it rests on is less than MLPerf asks for."""
        return any(trial.short for trial in self._rests_on)

    @property
    def why_short(self) -> str:
        """What is missing, each reason once."""
        reasons = (reason for trial in self._rests_on if trial.short for reason in trial.why_short.split("; "))
        return "; ".join(dict.fromkeys(reasons))

    @property
    def disturbed(self) -> list[str]:
        """How many of the trials were disturbed, and by what the first of them; empty where none was."""
        found = [trial.disturbed for trial in self.trials if trial.disturbed]
        return [f"{len(found)} of {len(self.trials)} trials, the first by: {'; '.join(found[0])}"] if found else []

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "short": self.short, "why_short": self.why_short, "disturbed": self.disturbed}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RateSearch:
        trials = tuple(RateTrial.from_json(each) for each in fields["trials"])
        return cls(fields["p99_bound_ms"], fields["rate_per_s"], fields["why"], trials)

    @property
    def _rests_on(self) -> tuple[RateTrial, ...]:
        """The trials that confirm the rate; where there is none, the last, after which the search gave up."""
        if self.rate_per_s is None:
            return self.trials[-1:]
        return tuple(each for each in self.trials if (each.reason, each.rate_per_s) == ("confirm", self.rate_per_s))


RunTrial = Callable[[float, TrialReason, int], RateTrial]
"""Makes one trial of a rate; the number, from 0, makes its arrivals others than those before."""


def find_highest_rate(
    attempt: RunTrial,
    most_per_s: float,
    p99_bound_ms: float,
    precision: float = RATE_PRECISION,
    confirmations: int = CONFIRMATIONS,
    most_trials: int = MAX_TRIALS,
) -> RateSearch:
    """Search below `most_per_s`, what a closed loop is answered: no open one can be answered more often for long.

    Where answers alone take longer than the bound, no rate is tried, or no lower one.
    """
    trials: list[RateTrial] = []

    def meets(rate_per_s: float, reason: TrialReason) -> bool:
        trials.append(attempt(rate_per_s, reason, len(trials)))
        return trials[-1].meets

    def done(rate_per_s: float | None, why: str) -> RateSearch:
        return RateSearch(p99_bound_ms, rate_per_s, why, tuple(trials))

    alone_ms = 1000 / most_per_s
    if alone_ms > p99_bound_ms:
        return done(None, f"one answer alone takes {alone_ms:.4g} ms, the bound is {p99_bound_ms:g} ms")
    low, high = 0.0, most_per_s
    while high - low > precision * high and len(trials) + 1 < most_trials - confirmations:
        middle = (low + high) / 2
        if middle < LOWEST_RATE_SHARE * most_per_s:
            break
        if meets(middle, "search") or meets(middle, "again"):
            low = middle
        else:
            high = middle
        if low == 0.0 and len(trials) >= TRIALS_BEFORE_GIVING_UP and (least_ms := _service_p99_ms(trials)) > p99_bound_ms:
            why = f"one answer in a hundred takes {least_ms:.4g} ms by itself, the bound is {p99_bound_ms:g} ms"
            return done(None, why)
    if low == 0.0:
        return done(None, f"no rate from {high:.3g} per s on met the bound")
    step = precision
    while len(trials) + confirmations <= most_trials:
        if all(meets(low, "confirm") for _ in range(confirmations)):
            return done(low, f"met in {confirmations} further trials; {_next_higher_rate(low, most_per_s, trials)}")
        low *= 1 - step
        step = min(2 * step, 0.5)
    return done(None, f"no rate was confirmed within {most_trials} trials: the machine is too noisy for so short ones")


def interrupted_search(p99_bound_ms: float, trials: tuple[RateTrial, ...]) -> RateSearch:
    """What is left of a search whose process died after these trials; nothing was confirmed."""
    met = [trial.rate_per_s for trial in trials if trial.meets]
    so_far = f"up to {max(met):.4g} per s met the bound" if met else "none met the bound"
    return RateSearch(p99_bound_ms, None, f"the search was cut off after trial {len(trials)}; so far {so_far}", trials)


def _service_p99_ms(trials: list[RateTrial]) -> float:
    """The p99 of the answers themselves, milliseconds: of the last trials the least, for noise only adds to it."""
    return min(trial.service_p99_ms for trial in trials[-TRIALS_BEFORE_GIVING_UP:])


def _next_higher_rate(low: float, most_per_s: float, trials: list[RateTrial]) -> str:
    above = [trial.rate_per_s for trial in trials if not trial.meets and trial.rate_per_s > low]
    if not above:
        return f"a closed loop is answered {most_per_s:.4g} per s"
    return f"{min(above):.4g} per s did not"
