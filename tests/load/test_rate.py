"""The search for the highest rate: on a queue made up for it, with and without noise, and on a real one."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.load.launch import Job, drive
from edgekit.load.rate import CONFIRMATIONS, MOST_TRIALS, PRECISION, Found, Reason, Trial, find
from edgekit.load.scenarios import Load
from edgekit.load.subjects import Words

CAPACITY, BOUND_MS = 1000.0, 10.0


def queue(limit_per_s: float, noise: float = 0.0, seed: int = 0) -> tuple[list[int], object]:
    """A server whose p99 passes the bound at a rate; `noise` is the standard deviation of a p99's logarithm."""
    generator = np.random.default_rng(seed)
    numbers: list[int] = []

    def attempt(rate_per_s: float, reason: Reason, number: int) -> Trial:
        numbers.append(number)
        p99_ms = BOUND_MS * (rate_per_s / limit_per_s) ** 3 * float(np.exp(generator.normal(0, noise)))
        return Trial(rate_per_s, p99_ms, 100, p99_ms <= BOUND_MS, reason)

    return numbers, attempt


@pytest.mark.parametrize("limit", [40.0, 250.0, 612.0, 990.0])
def test_a_quiet_queue_is_found_within_the_precision(limit: float) -> None:
    numbers, attempt = queue(limit)
    found = find(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert found.rate_per_s is not None
    assert limit * (1 - 2 * PRECISION) <= found.rate_per_s <= limit
    assert numbers == list(range(len(found.trials))), "every trial has arrivals of its own"


@pytest.mark.parametrize("seed", range(30))
def test_what_is_found_in_noise_was_confirmed_and_the_search_ends(seed: int) -> None:
    _, attempt = queue(500.0, noise=0.3, seed=seed)
    found = find(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert len(found.trials) <= MOST_TRIALS
    if found.rate_per_s is None:
        assert "no rate" in found.why
        return
    confirming = [trial for trial in found.trials if trial.reason == "confirm" and trial.rate_per_s == found.rate_per_s]
    assert len(confirming) == CONFIRMATIONS and all(trial.meets for trial in confirming)
    assert found.rate_per_s < 750


def test_one_failure_by_chance_does_not_end_a_rate() -> None:
    _, attempt = queue(900.0)
    chance = iter([False])

    def unlucky(rate_per_s: float, reason: Reason, number: int) -> Trial:
        trial = attempt(rate_per_s, reason, number)  # type: ignore[operator]
        met = next(chance, trial.meets)
        return Trial(rate_per_s, trial.p99_ms, 100, met, reason)

    found = find(unlucky, CAPACITY, BOUND_MS)
    assert [trial.reason for trial in found.trials[:2]] == ["search", "again"]
    assert found.rate_per_s is not None and found.rate_per_s > 800


def test_a_bound_that_nothing_meets_has_no_rate() -> None:
    _, attempt = queue(1e-6)
    found = find(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert found.rate_per_s is None and found.why.startswith("no rate from")


def test_where_nothing_fails_a_closed_loop_is_the_limit() -> None:
    _, attempt = queue(1e6)
    found = find(attempt, CAPACITY, BOUND_MS)  # type: ignore[arg-type]
    assert found.rate_per_s is not None and CAPACITY * (1 - 2 * PRECISION) < found.rate_per_s < CAPACITY
    assert found.why == "met in 3 further trials; a closed loop is answered 1000 per s"
    assert Found.from_json(found.to_json()) == found


def test_the_rate_of_a_worker_that_sleeps_is_found_by_loadgen() -> None:
    """5 ms an answer is less than 200 per s; a bound of 0.2 s is met far below that, on a busy machine too."""
    words = Words("tests.load.subjects:sleeping", {"seconds": 0.005})
    outcome = drive(Job(words, search=Load("server", 0.3, p99_bound_ms=200.0)))
    assert outcome.failed is None and outcome.found is not None
    found = outcome.found
    assert found.rate_per_s is not None, found.why
    assert 30 < found.rate_per_s < 200
    assert all(trial.meets == (trial.p99_ms <= 200) for trial in found.trials)
