from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest

from edgekit.device.measure import bench
from edgekit.runner.errors import InputError


def test_calls_take_turns_in_rotating_order_and_warm_up_is_not_counted() -> None:
    heard: list[str] = []
    done: list[int] = []
    calls = {name: (lambda name=name: heard.append(name)) for name in "abc"}
    samples = bench.time_interleaved(calls, rounds=3, calls_per_round=2, warmup_per_round=1, on_round=done.append)
    assert "".join(heard) == "aaabbbccc" + "bbbcccaaa" + "cccaaabbb"
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 6, "b": 6, "c": 6}
    assert done == [1, 2, 3]


def test_each_call_is_timed_singly_in_milliseconds() -> None:
    pauses = iter([0.0, 0.03, 0.0, 0.0])
    samples = bench.time_interleaved({"pause": lambda: time.sleep(next(pauses))}, 1, 4, 0)["pause"]
    assert samples.argmax() == 1
    assert 29.0 < samples[1] < 200.0
    assert np.delete(samples, 1).max() < samples[1]


def test_the_collector_rests_while_timing_and_comes_back() -> None:
    seen: list[bool] = []
    assert gc.isenabled()
    bench.time_interleaved({"look": lambda: seen.append(gc.isenabled())}, 2, 3, 0)
    assert seen == [False] * 6
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        bench.time_interleaved({"fail": lambda: 1 // 0}, 1, 1, 0)
    assert gc.isenabled()


@pytest.mark.parametrize(("numbers", "word"), [((0, 1, 0), "rounds"), ((1, 0, 0), "calls"), ((1, 1, -1), "warmup")])
def test_numbers_that_time_nothing_are_refused(numbers: tuple[int, int, int], word: str) -> None:
    with pytest.raises(InputError, match=f"{word}: got"):
        bench.time_interleaved({"x": lambda: None}, *numbers)


def test_summary_of_known_samples() -> None:
    figures = bench.latency_summary(np.arange(1.0, 102.0))
    assert figures == {
        "p50_ms": 51.0, "p90_ms": 91.0, "p95_ms": 96.0, "p99_ms": 100.0,
        "mean_ms": 51.0, "throughput_per_s": pytest.approx(1000 / 51), "calls": 101,
    }  # fmt: skip
    with pytest.raises(InputError, match="samples"):
        bench.latency_summary(np.array([]))


def test_a_figure_carries_where_it_was_taken() -> None:
    machine = bench.machine_facts()
    assert set(machine) == {"host", "cpu", "cores", "machine", "system", "python", "numpy"}
    assert all(machine[key] for key in ("cpu", "machine", "python"))


def test_compared_variants_are_opened_again_in_rotating_order() -> None:
    heard: list[str] = []
    done: list[int] = []

    def opener(name: str) -> Callable[[], Callable[[], object]]:
        def opened() -> Callable[[], object]:
            heard.append(name.upper())
            return lambda: heard.append(name)

        return opened

    openers = {name: opener(name) for name in "ab"}
    growth = bench.timed_openings(
        openers, rounds=20, most_rounds=45, calls_per_round=2, warmup_per_round=1, on_round=done.append
    )
    samples, openings = next(growth)
    assert openings == 10 and {name: len(taken) for name, taken in samples.items()} == {"a": 40, "b": 40}
    first, second = "A" + bench.FRESH_CALLS * "a", "B" + bench.FRESH_CALLS * "b"
    assert "".join(heard).startswith(first + second + "aaabbbbbbaaa" + second + first + "bbbaaaaaabbb" + first + second)
    samples, openings = next(growth)
    assert openings == 20 and len(samples["a"]) == 80 and done == list(range(1, 21))
    assert next(growth, None) is None  # 60 rounds would be more than 45


def test_what_the_caller_gives_up_keeps_what_it_has_and_the_others_go_on() -> None:
    opened: list[str] = []
    openers = {name: (lambda name=name: opened.append(name) or (lambda: None)) for name in "abc"}
    cpu_ms: dict[str, np.ndarray] = {}
    growth = bench.timed_openings(openers, 10, 40, 2, 0, cpu_ms=cpu_ms)
    next(growth)
    samples, openings = growth.send({"a", "c"})
    assert openings == 20 and {name: len(taken) for name, taken in samples.items()} == {"a": 40, "b": 20, "c": 40}
    assert opened.count("b") == 10 and opened.count("a") == 20
    samples, _ = growth.send({"b", "c"})  # what was given up does not come back
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 40, "b": 20, "c": 60}
    assert {name: len(values) for name, values in cpu_ms.items()} == {"a": 20, "b": 10, "c": 30}
    with pytest.raises(StopIteration):
        growth.send(set())


@pytest.mark.parametrize(("rounds", "openings"), [(1, 1), (10, 10), (11, 11), (25, 25), (30, 10), (36, 12), (200, 10)])
def test_every_opening_has_as_many_rounds_as_any_other(rounds: int, openings: int) -> None:
    samples, found = next(bench.timed_openings({"x": lambda: lambda: None}, rounds, 1, 1, 0))
    assert (found, len(samples["x"])) == (openings, rounds)


def test_a_limit_shortens_the_first_rounds_and_every_opening_alike() -> None:
    opened: list[int] = []

    def opener() -> Callable[[], object]:
        opened.append(0)
        return lambda: time.sleep(0.001)

    growth = bench.timed_openings(
        {"x": opener}, rounds=300, most_rounds=900, calls_per_round=5, warmup_per_round=1, limit_s=0.2
    )
    samples, openings = next(growth)
    assert 10 <= openings == len(opened)
    rounds = len(samples["x"]) / 5
    assert rounds % openings == 0 and openings <= rounds < 300
    assert next(growth, None) is None


def test_a_limit_ends_added_rounds_between_two_openings() -> None:
    growth = bench.timed_openings({"x": lambda: lambda: time.sleep(0.002)}, 10, 100_000, 1, 0, limit_s=1.0)
    blocks = list(growth)
    assert len(blocks) >= 2, "the first rounds take a quarter of the time"
    samples, openings = blocks[-1]
    assert len(samples["x"]) == openings < 100_000


def test_a_machine_that_slows_down_after_the_first_opening_does_not_overrun_the_limit() -> None:
    calls, opened = [0], [0]

    def opener() -> Callable[[], object]:
        opened[0] += 1

        def call() -> None:
            calls[0] += 1
            time.sleep(0.01 if opened[0] > 1 else 0)

        return call

    samples, openings = next(bench.timed_openings({"x": opener}, 1000, 1000, 1, 0, limit_s=0.3))
    assert (openings, opened[0]) == (10, 10)
    assert len(samples["x"]) % 10 == 0, "each opening has as many rounds as any other"
    assert calls[0] < 100 + 2 * bench.FRESH_CALLS * 10, "the rounds of the first opening, and few after it"


def test_one_slow_round_does_not_end_the_rounds_while_there_is_time() -> None:
    pauses = iter([0.0] * bench.FRESH_CALLS + [1.0])
    growth = bench.timed_openings({"x": lambda: lambda: time.sleep(next(pauses, 0.0))}, 30, 60, 1, 0, limit_s=9.0)
    counts = [(openings, len(samples["x"])) for samples, openings in growth]
    assert counts == [(30, 30), (60, 60)], "all rounds, in openings of one round each"


def test_rounds_come_out_exactly_where_openings_have_fewer() -> None:
    """Of four planned, a slow third leaves two to each opening."""
    pauses = iter([0.0] * bench.FRESH_CALLS + [0.0, 0.0, 1.0])
    growth = bench.timed_openings({"x": lambda: lambda: time.sleep(next(pauses, 0.0))}, 40, 80, 1, 0, limit_s=9.0)
    counts = [(openings, len(samples["x"])) for samples, openings in growth]
    assert counts == [(20, 40), (40, 80)]


def test_ten_openings_of_one_round_there_are_in_any_case() -> None:
    samples, openings = next(bench.timed_openings({"x": lambda: lambda: time.sleep(0.001)}, 30, 30, 2, 0, limit_s=0.0))
    assert (openings, len(samples["x"])) == (10, 20)
