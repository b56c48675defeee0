"""The queue before a model: each answer to its caller, none lost or twice, deadlines kept, hang-ups at any moment."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.serve.batcher import Answer, BatchCurve, Batcher
from edgekit.serve.errors import RequestError

PAYS = BatchCurve({1: 0.4, 2: 0.5, 4: 0.7, 8: 1.0})
FLAT = BatchCurve({1: 0.4, 2: 0.8, 4: 1.6})
NEVER_S = math.inf


@dataclass
class Model:
    """Gives each sample twice its value, and notes what it ran, in calls of which sizes, on which thread."""

    pause_s: float = 0.0
    fails_on: float = math.nan
    ran: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def execute(self, x: np.ndarray) -> np.ndarray:
        self.sizes.append(len(x))
        self.threads.add(threading.get_ident())
        self.ran += x[:, 0].tolist()
        if self.pause_s:
            time.sleep(self.pause_s)
        if (x == self.fails_on).any():
            raise ValueError("the interpreter fails")
        return 2 * x


def _samples(first: int, count: int = 1) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.float32)[:, None]


async def _answer(batcher: Batcher, x: np.ndarray, deadline_s: float = NEVER_S) -> Answer:
    made = batcher.submit(x, deadline_s)
    return made if isinstance(made, Answer) else await made


def test_an_idle_model_answers_at_once_and_without_a_thread() -> None:
    model = Model()

    async def run() -> None:
        batcher = Batcher(model.execute, FLAT, limit=4)
        made = batcher.submit(_samples(3), NEVER_S)
        assert isinstance(made, Answer)
        assert made.outputs.tolist() == [[6.0]]
        assert made.queue_ns == 0

    asyncio.run(run())
    assert model.threads == {threading.get_ident()}


def test_what_comes_in_one_turn_of_the_loop_makes_one_batch() -> None:
    model = Model()

    async def run() -> list[Answer]:
        batcher = Batcher(model.execute, PAYS, limit=64)
        return await asyncio.gather(*(_answer(batcher, _samples(number)) for number in range(13)))

    answers = asyncio.run(run())
    assert [answer.outputs[0, 0] for answer in answers] == [2.0 * number for number in range(13)]
    assert model.sizes == [8, 4, 1]


def test_where_batching_does_not_pay_every_sample_runs_alone() -> None:
    model = Model(pause_s=0.001)

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model.execute, FLAT, limit=64, executor=pool)
            await asyncio.gather(*(_answer(batcher, _samples(number)) for number in range(9)))

    asyncio.run(run())
    assert model.sizes == [1] * 9


def test_a_request_of_many_samples_is_split_and_put_together_again() -> None:
    model = Model()

    async def run() -> Answer:
        return await _answer(Batcher(model.execute, PAYS, limit=4), _samples(0, 15))

    assert asyncio.run(run()).outputs[:, 0].tolist() == [2.0 * number for number in range(15)]
    assert model.sizes == [8, 4, 2, 1]


def test_a_full_queue_refuses_at_the_door_and_says_when_to_come_again() -> None:
    async def run() -> RequestError:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(Model(pause_s=0.05).execute, FLAT, limit=2, executor=pool)
            waiting = [asyncio.ensure_future(_answer(batcher, _samples(number))) for number in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(RequestError) as refused:
                batcher.submit(_samples(2), NEVER_S)
            await asyncio.gather(*waiting)
            return refused.value

    refusal = asyncio.run(run())
    assert refusal.status == 503
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s >= 1
    assert "queue is full" in refusal.text


def test_what_cannot_meet_its_deadline_is_refused_before_it_waits() -> None:
    model = Model()

    async def run() -> None:
        batcher = Batcher(model.execute, BatchCurve({1: 50.0}), limit=8)
        with pytest.raises(RequestError, match="after its deadline"):
            batcher.submit(_samples(0), time.monotonic() + 0.01)

    asyncio.run(run())
    assert model.ran == []


def test_what_expires_while_it_waits_never_runs() -> None:
    model = Model(pause_s=0.1)

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model.execute, FLAT, limit=8, executor=pool)
            first = asyncio.ensure_future(_answer(batcher, _samples(1)))
            await asyncio.sleep(0.01)
            with pytest.raises(RequestError, match="deadline passed"):
                await _answer(batcher, _samples(2), time.monotonic() + 0.02)
            await first

    asyncio.run(run())
    assert model.ran == [1.0]


def test_the_size_of_a_batch_keeps_the_earliest_deadline() -> None:
    curve = BatchCurve({1: 1.0, 2: 1.5, 4: 2.5, 8: 400.0 / 100})
    assert curve.batch_size(8) == 8
    assert curve.batch_size(8, slack_ms=3.0) == 4
    assert curve.batch_size(3, slack_ms=3.0) == 2
    assert curve.batch_size(8, slack_ms=0.1) == 1


def test_a_caller_that_hangs_up_in_mid_batch_stops_nobody_elses_answer() -> None:
    model = Model(pause_s=0.02)

    async def run() -> list[Answer]:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model.execute, PAYS, limit=64, executor=pool)
            callers = [asyncio.ensure_future(_answer(batcher, _samples(number))) for number in range(8)]
            await asyncio.sleep(0.01)
            callers[3].cancel()
            rest = await asyncio.gather(*(each for place, each in enumerate(callers) if place != 3))
            return [*rest, await _answer(batcher, _samples(99))]

    answers = asyncio.run(run())
    assert [answer.outputs[0, 0] for answer in answers] == [0, 2, 4, 8, 10, 12, 14, 198]


@pytest.mark.parametrize("grants_s", [0.3, NEVER_S], ids=["a deadline", "a full batch"])
def test_who_waits_for_a_batch_waits_no_longer_than_that_pays(grants_s: float) -> None:
    """One that came later with less time, or that fills the batch, ends the waiting of the first."""
    model = Model()

    async def run() -> list[Answer]:
        batcher = Batcher(model.execute, PAYS, limit=64, delay_s=30.0)
        first = asyncio.ensure_future(_answer(batcher, _samples(0)))
        await asyncio.sleep(0.01)
        assert not first.done()
        count = 1 if grants_s < NEVER_S else 7
        return await asyncio.wait_for(
            asyncio.gather(first, _answer(batcher, _samples(1, count), time.monotonic() + grants_s)), 10
        )

    first, second = asyncio.run(run())
    assert first.outputs.tolist() == [[0.0]]
    assert second.outputs[0].tolist() == [2.0]
    assert first.batch == second.batch


def test_a_failure_is_the_answer_of_its_batch_and_the_queue_goes_on() -> None:
    model = Model(fails_on=1.0)

    async def run() -> Answer:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(model.execute, FLAT, limit=8, executor=pool)
            with pytest.raises(ValueError, match="the interpreter fails"):
                await _answer(batcher, _samples(1))
            return await _answer(batcher, _samples(2))

    assert asyncio.run(run()).outputs.tolist() == [[4.0]]


@dataclass(frozen=True)
class Caller:
    """Comes after so many turns of the loop; hangs up after as many more, or never; grants so many seconds."""

    samples: int
    comes: int
    hangs_up: int | None
    grants_s: float


CALLERS = st.lists(
    st.builds(
        Caller,
        samples=st.integers(1, 9),
        comes=st.integers(0, 12),
        hangs_up=st.none() | st.integers(0, 6),
        grants_s=st.sampled_from([NEVER_S, NEVER_S, 0.5, 0.004, 0.0]),
    ),
    min_size=1,
    max_size=24,
)


@pytest.mark.parametrize("curve", [PAYS, FLAT], ids=["batches", "single"])
@pytest.mark.parametrize("threaded", [False, True], ids=["inline", "thread"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(callers=CALLERS, limit=st.integers(1, 40), delay_s=st.sampled_from([0.0, 0.002]))
def test_nothing_is_lost_nor_given_twice_nor_to_another(
    curve: BatchCurve, threaded: bool, callers: list[Caller], limit: int, delay_s: float
) -> None:
    """Whatever order callers come and go in: every caller gets its own answer, or the reason why there is none."""
    model = Model()
    outcomes: dict[int, str] = {}

    async def call(batcher: Batcher, number: int, caller: Caller) -> None:
        for _ in range(caller.comes):
            await asyncio.sleep(0)
        x = _samples(1000 * number, caller.samples)
        try:
            answer = await _answer(batcher, x, time.monotonic() + caller.grants_s)
        except RequestError as refusal:
            assert refusal.status == 503
            outcomes[number] = "refused"
        else:
            assert np.array_equal(answer.outputs, 2 * x)
            outcomes[number] = "answered"

    async def run(executor: Executor | None) -> Batcher:
        batcher = Batcher(model.execute, curve, limit, executor, delay_s)
        tasks = [asyncio.create_task(call(batcher, number, caller)) for number, caller in enumerate(callers)]
        for number, caller in enumerate(callers):
            if caller.hangs_up is not None:
                for _ in range(caller.hangs_up):
                    await asyncio.sleep(0)
                if tasks[number].cancel():
                    outcomes.setdefault(number, "gone")
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        for task in tasks:
            if not task.cancelled():
                task.result()
        assert (await _answer(batcher, _samples(-7))).outputs.tolist() == [[-14.0]]
        return batcher

    if threaded:
        with ThreadPoolExecutor(1) as pool:
            batcher = asyncio.run(run(pool))
    else:
        batcher = asyncio.run(run(None))
    assert set(outcomes) == set(range(len(callers)))
    assert len(model.ran) == len(set(model.ran)), "a sample ran twice"
    for number, outcome in outcomes.items():
        own = {1000.0 * number + place for place in range(callers[number].samples)}
        if outcome == "refused":
            assert own.isdisjoint(model.ran)
        if outcome == "answered":
            assert own <= set(model.ran)
    assert batcher.is_idle
    assert batcher.pending == 0


def test_a_pool_that_takes_nothing_any_more_fails_the_batch_and_leaves_no_caller_waiting() -> None:
    async def run() -> list[BaseException]:
        pool = ThreadPoolExecutor(1)
        pool.shutdown()
        batcher = Batcher(Model().execute, FLAT, 8, pool)
        waits = [asyncio.wait_for(_answer(batcher, _samples(each)), 5) for each in range(3)]
        return await asyncio.gather(*waits, return_exceptions=True)

    found = asyncio.run(run())
    assert [type(each) for each in found] == [RuntimeError] * 3


@pytest.mark.parametrize("error", [StopIteration("over"), MemoryError(), ValueError("x")])
@pytest.mark.parametrize("threads", [0, 1])
def test_whatever_a_model_raises_ends_every_wait(error: Exception, threads: int) -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise error

    async def run() -> list[BaseException]:
        with ThreadPoolExecutor(1) as pool:
            batcher = Batcher(fails, PAYS, 8, pool if threads else None)
            waits = [asyncio.wait_for(_answer(batcher, _samples(each)), 5) for each in range(3)]
            return await asyncio.gather(*waits, return_exceptions=True)

    found = asyncio.run(run())
    assert len(found) == 3
    assert all(isinstance(each, (RuntimeError, MemoryError, ValueError)) for each in found), found
