"""The search for the highest rate: on a simulated queue with and without noise, and on a real one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from edgekit.device.measure.conditions import Conditions
from edgekit.measure.load.launcher import LoadJob, run_loads
from edgekit.measure.load.rate_search import (
    CONFIRMATIONS,
    LOWEST_RATE_SHARE,
    MAX_TRIALS,
    MIN_TRIAL_QUERIES,
    RATE_PRECISION,
    RateSearch,
    RateTrial,
    TrialReason,
    find_highest_rate,
    interrupted_search,
)
from edgekit.measure.load.scenarios import Load
from edgekit.measure.load.subjects import SubjectSpec

CAPACITY, BOUND_MS = 1000.0, 10.0
UNKNOWN: dict[str, Any] = {each.name: None for each in fields(Conditions)}
SEEN = Conditions(**{**UNKNOWN, "seconds": 1.0, "pace_ms": 1.0, "pace_change": 0.0})


def trial(
    rate_per_s: float,
    p99_ms: float,
    reason: TrialReason = "search",
    why_short: str = "",
    disturbed: Sequence[str] = (),
    service_p99_ms: float = 1.0,
) -> RateTrial:
    meets, short = p99_ms <= BOUND_MS, bool(why_short)
    return RateTrial(rate_per_s, p99_ms, service_p99_ms, 100, meets, reason, short, why_short, SEEN, list(disturbed))


def queue(limit_per_s: float, noise: float = 0.0, seed: int = 0) -> tuple[list[int], object]:
    """A server whose p99 passes the bound at a rate; `noise` is the standard deviation of a p99's logarithm."""
    generator = np.random.default_rng(seed)
    numbers: list[int] = []

    def attempt(rate_per_s: float, reason: TrialReason, number: int) -> RateTrial:
        numbers.append(number)
        p99_ms = BOUND_MS * (rate_per_s / limit_per_s) ** 3 * float(np.exp(generator.normal(0, noise)))
        return trial(rate_per_s, p99_ms, reason)

    return numbers, attempt


@pytest.mark.parametrize("limit", [130.0, 250.0, 612.0, 990.0])
def test_a_quiet_queue_is_found_within_the_precision(limit: float) -> None:
    numbers, attempt = queue(limit)
    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert result.rate_per_s is not None
    assert limit * (1 - 2 * RATE_PRECISION) <= result.rate_per_s <= limit
    assert numbers == list(range(len(result.trials))), "every trial has arrivals of its own"


@pytest.mark.parametrize("seed", range(30))
def test_what_is_found_in_noise_was_confirmed_and_the_search_ends(seed: int) -> None:
    _, attempt = queue(500.0, noise=0.3, seed=seed)
    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert len(result.trials) <= MAX_TRIALS
    if result.rate_per_s is None:
        assert "no rate" in result.why
        return
    confirming = [
        trial for trial in result.trials if trial.reason == "confirm" and trial.rate_per_s == result.rate_per_s
    ]
    assert len(confirming) == CONFIRMATIONS and all(trial.meets for trial in confirming)
    assert result.rate_per_s < 750


def test_one_failure_by_chance_does_not_end_a_rate() -> None:
    _, attempt = queue(900.0)
    chance = iter([False])

    def unlucky(rate_per_s: float, reason: TrialReason, number: int) -> RateTrial:
        built: RateTrial = attempt(rate_per_s, reason, number)  # type: ignore[operator]
        return replace(built, meets=next(chance, built.meets))

    result = find_highest_rate(unlucky, CAPACITY, BOUND_MS)
    assert [trial.reason for trial in result.trials[:2]] == ["search", "again"]
    assert result.rate_per_s is not None and result.rate_per_s > 800


def test_a_bound_that_nothing_meets_has_no_rate() -> None:
    _, attempt = queue(1e-6)
    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert result.rate_per_s is None and result.why.startswith("no rate of")


def test_the_search_gives_up_where_the_rate_no_longer_matters() -> None:
    """At a rate of a few per million, a hundred queries would take days."""
    numbers, attempt = queue(1e-6)
    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert min(trial.rate_per_s for trial in result.trials) >= LOWEST_RATE_SHARE * CAPACITY
    assert len(numbers) == 6


def test_a_search_whose_answers_alone_are_too_slow_ends_after_two_rates() -> None:
    result = find_highest_rate(
        lambda rate, reason, _: trial(rate, 50.0, reason, service_p99_ms=12.5), CAPACITY, BOUND_MS
    )
    assert [each.rate_per_s for each in result.trials] == [500.0, 500.0, 250.0, 250.0]
    assert result.why == "one answer in a hundred takes 12.5 ms by itself, but the bound is 10 ms"


def test_answers_that_are_slow_for_a_moment_do_not_end_the_search() -> None:
    moment = iter([50.0] * 3)

    def attempt(rate_per_s: float, reason: TrialReason, _: int) -> RateTrial:
        alone_ms = next(moment, 1.0)
        return trial(rate_per_s, max(alone_ms, rate_per_s / 20), reason, service_p99_ms=alone_ms)

    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)
    assert result.rate_per_s is not None and result.rate_per_s <= 200


def test_answers_that_alone_take_longer_than_the_bound_are_not_searched() -> None:
    numbers, attempt = queue(1e-6)
    result = find_highest_rate(attempt, 50.0, BOUND_MS)  # type: ignore[arg-type]
    assert numbers == [] and result == RateSearch(
        BOUND_MS, None, "one answer alone takes 20 ms, but the bound is 10 ms", ()
    )
    assert (result.short, result.why_short, result.disturbed) == (False, "", [])


def test_a_rate_is_as_short_as_the_trials_that_confirm_it() -> None:
    why = ["1 of 600 s", "1 of 600 s; too few queries", "1 of 600 s"]
    confirming = [trial(400.0, 5.0, "confirm", words) for words in why]
    result = RateSearch(BOUND_MS, 400.0, "", (trial(500.0, 50.0, why_short="9 of 100 queries"), *confirming))
    assert (result.short, result.why_short) == (True, "1 of 600 s; too few queries")
    sound = RateSearch(BOUND_MS, 400.0, "", (*result.trials[:1], trial(400.0, 5.0, "confirm")))
    assert (sound.short, sound.why_short) == (False, "")
    nothing = RateSearch(BOUND_MS, None, "", result.trials[:1])
    assert (nothing.short, nothing.why_short) == (True, "9 of 100 queries")


def test_a_noisy_search_is_explained_by_its_first_noisy_trial() -> None:
    trials = (trial(1.0, 5.0), trial(2.0, 5.0, disturbed=["a", "b"]), trial(3.0, 5.0, disturbed=["c"]))
    assert RateSearch(BOUND_MS, 1.0, "", trials).disturbed == ["2 of 3 trials, the first by: a; b"]
    assert RateSearch(BOUND_MS, 1.0, "", trials[:1]).disturbed == []


def test_what_is_left_of_a_search_confirms_nothing() -> None:
    trials = (trial(500.0, 50.0), trial(250.0, 5.0), trial(375.0, 5.0))
    result = interrupted_search(BOUND_MS, trials)
    assert result.rate_per_s is None and result.trials == trials
    assert result.why == "the search was cut off after trial 3; so far up to 375 per s met the bound"
    assert interrupted_search(BOUND_MS, trials[:1]).why.endswith("so far none met the bound")


def test_where_nothing_fails_a_closed_loop_is_the_limit() -> None:
    _, attempt = queue(1e6)
    result = find_highest_rate(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert result.rate_per_s is not None and CAPACITY * (1 - 2 * RATE_PRECISION) < result.rate_per_s < CAPACITY
    assert result.why == "met in 3 further trials; a closed loop reaches 1000 per s"
    assert RateSearch.from_json(result.to_json()) == result


def test_the_rate_of_a_worker_that_sleeps_is_found_by_loadgen() -> None:
    """5 ms an answer is less than 200 per s; a bound of 0.2 s is met far below that, on a busy machine too."""
    words = SubjectSpec("tests.measure.load.subjects:sleeping", {"seconds": 0.005})
    outcome = run_loads(LoadJob(words, search=Load("server", 0.3, p99_bound_ms=200.0)))
    assert outcome.failed is None and outcome.search is not None
    result = outcome.search
    assert result.rate_per_s is not None, result.why
    assert 30 < result.rate_per_s < 200
    assert all(trial.meets == (trial.p99_ms <= 200) for trial in result.trials)
    assert result.short and result.why_short.startswith("0.3 of 600 s")
    assert all(trial.short for trial in result.trials)
    assert all(trial.seen.seconds > 0.3 for trial in result.trials if trial.reason == "confirm")


def test_no_trial_is_made_of_a_worker_that_is_slower_than_the_bound() -> None:
    words = SubjectSpec("tests.measure.load.subjects:sleeping", {"seconds": 0.02})
    outcome = run_loads(LoadJob(words, search=Load("server", 0.3, MIN_TRIAL_QUERIES)))
    assert outcome.failed is None and outcome.search is not None
    assert outcome.search.rate_per_s is None and outcome.search.trials == ()
    assert re.fullmatch(r"one answer alone takes [0-9.]+ ms, but the bound is 10 ms", outcome.search.why)


def test_trials_survive_the_process_that_made_them() -> None:
    """Warming up takes a hundred calls or so, each of at least eight trials as many: the sixth at most dies."""
    words = SubjectSpec("tests.measure.load.subjects:killed", {"after": 600})
    outcome = run_loads(LoadJob(words, search=Load("server", 0.1, MIN_TRIAL_QUERIES, p99_bound_ms=5000.0)))
    assert outcome.failed is not None and outcome.failed.startswith("the search for the highest rate: the process was")
    result = outcome.search
    assert result is not None and result.rate_per_s is None and result.trials
    assert all(trial.queries >= MIN_TRIAL_QUERIES and trial.meets for trial in result.trials)
    assert result.why.startswith(f"the search was cut off after trial {len(result.trials)}; so far up to")
