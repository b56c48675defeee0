"""A coroutine runs at once up to its first wait; from there on it is a task like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from edgekit.serve.connection import start_eagerly

RUN = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Run = Callable[[Coroutine[Any, Any, None]], None]


@RUN
def test_what_never_waits_has_ended_and_makes_no_task(run: Run) -> None:
    events: list[str] = []

    async def work() -> None:
        event = asyncio.Event()
        event.set()
        await event.wait()
        events.append("done")

    async def main() -> None:
        assert start_eagerly(work(), asyncio.get_running_loop()) is None
        assert events == ["done"]

    run(main())


@RUN
def test_what_waits_goes_on_as_a_task_and_gets_what_it_waited_for(run: Run) -> None:
    events: list[Any] = []

    async def work(future: asyncio.Future[int]) -> None:
        events.append("begun")
        events.append(await future)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        events.append(await asyncio.to_thread(lambda: "from a thread"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        task = start_eagerly(work(future), loop)
        assert events == ["begun"]
        assert task is not None
        future.set_result(7)
        await task
        assert events == ["begun", 7, "from a thread"]

    run(main())


@RUN
def test_a_failure_and_a_cancellation_reach_the_coroutine(run: Run) -> None:
    events: list[str] = []

    async def work(future: asyncio.Future[int]) -> None:
        try:
            await future
        except ValueError as error:
            events.append(str(error))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        task = start_eagerly(work(future), loop)
        assert task is not None
        future.set_exception(ValueError("failed"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["failed", "cancelled"]

    run(main())


def test_an_exception_before_the_first_wait_is_the_callers() -> None:
    async def work() -> None:
        raise ValueError("at once")

    async def main() -> None:
        with pytest.raises(ValueError, match="at once"):
            start_eagerly(work(), asyncio.get_running_loop())

    asyncio.run(main())
