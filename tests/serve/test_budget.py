"""The sum of what requests hold is bounded: a few large ones, and never the small ones' end."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from edgekit.serve.errors import RequestError
from edgekit.serve.repository import RepositoryEntry
from edgekit.serve.request import MIN_BUDGET_BYTES, SMALL_BYTES, MemoryBudget, Reservation
from edgekit.serve.worker import Worker
from tests.runner.conftest import samples
from tests.serve import cached, in_process
from tests.serve.attacks import resident_mb
from tests.serve.in_process import PendingRequest
from tests.serve.server import INFER, RAW

MB = 1 << 20
PIECE = bytes(MB)


def grown(budget: MemoryBudget, most: int) -> Reservation:
    """A request that takes one megabyte after the other, up to `most`, or until it is refused and lets go."""
    held = Reservation(budget)
    try:
        for _ in range(most // MB):
            held.take(MB)
    except RequestError as refusal:
        assert refusal.status == 503
        assert refusal.retry_after_s
        held.release()
    return held


def test_many_large_ones_stay_within_the_budget_and_small_ones_find_space() -> None:
    budget = MemoryBudget(64 * MB)
    for _ in range(100):
        grown(budget, 59 * MB)
        assert budget.used_bytes <= budget.max_bytes
    assert budget.used_bytes > budget.max_bytes // 2
    Reservation(budget).take(MB)
    for _ in range(1000):
        Reservation(budget).take(SMALL_BYTES)


def test_one_that_is_alone_may_take_all_and_gives_it_back() -> None:
    budget = MemoryBudget(0)
    held = Reservation(budget)
    held.take(3 * MIN_BUDGET_BYTES)
    with pytest.raises(RequestError, match=f"of {MIN_BUDGET_BYTES >> 20} MB"):
        Reservation(budget).take(MB)
    held.release()
    held.release()
    assert budget.used_bytes == 0
    Reservation(budget).take(MB)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RepositoryEntry:
    return in_process.entry(cached.tiny(tmp_path_factory.mktemp("tiny")), 0.1)


async def unfinished(one: Worker, pieces: int) -> list[PendingRequest]:
    """Bodies of so many megabytes, of which the rest does not come."""
    found = [PendingRequest(one, INFER, RAW) for _ in range(24)]
    for _ in range(pieces):
        for each in found:
            each.send(PIECE, more=True)
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    return found


def test_bodies_that_do_not_end_are_refused_from_a_sum_on_and_others_are_answered(tiny: RepositoryEntry) -> None:
    async def run() -> None:
        one = in_process.worker()
        await one.serve([tiny])
        attackers = await unfinished(one, 59)
        refused = [each for each in attackers if each.task.done()]
        assert {(await each.reply()).status for each in refused} == {503}
        assert 0 < one.app.budget.used_bytes <= one.app.budget.max_bytes
        small = PendingRequest(one, INFER, RAW)
        small.send(samples(1)[0].tobytes())
        assert (await small.reply()).status == 200
        for each in attackers:
            each.gone()
        await asyncio.gather(*(each.task for each in attackers))
        assert one.app.budget.used_bytes == 0

    asyncio.run(run())


@pytest.mark.parametrize("announced", [True, False])
def test_json_is_bounded_more_tightly_than_binary_tensors(tiny: RepositoryEntry, announced: bool) -> None:
    async def run() -> None:
        one = in_process.worker(most_json_bytes=MB)
        await one.serve([tiny])
        body = b"[" + b"[]," * MB + b"0]"
        request = PendingRequest(one, INFER, {"Content-Length": str(len(body))} if announced else {})
        request.send(body[: 2 * MB], more=True)
        request.send(body[2 * MB :])
        reply = await request.reply()
        assert (reply.status, "JSON" in reply.error) == (413, True), reply
        long_header = PendingRequest(one, INFER, {"Inference-Header-Content-Length": str(2 * MB)})
        long_header.send(body)
        assert (await long_header.reply()).status == 413

    asyncio.run(run())


def test_files_beyond_the_queue_are_refused(tiny: RepositoryEntry, tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", samples(1)[0])
    body = (tmp_path / "x.npy").read_bytes()

    async def run() -> None:
        one = in_process.worker(queue=4)
        await one.serve([tiny])
        requests = [PendingRequest(one, "/predict") for _ in range(20)]
        for each in requests:
            each.send(body)
        statuses = [(await each.reply()).status for each in requests]
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 4

    asyncio.run(run())


def test_a_request_that_is_refused_holds_nothing_any_more(tiny: RepositoryEntry) -> None:
    """Without Python's search for cycles, which may come much later."""

    async def run() -> int:
        one = in_process.worker(most_body_bytes=32 * MB)
        await one.serve([tiny])
        before = resident_mb(os.getpid())
        for _ in range(8):
            request = PendingRequest(one, INFER, RAW)
            for _ in range(20):
                request.send(b"x" * MB, more=True)
            request.send(b"x")
            assert (await request.reply()).status == 400
            del request
        return resident_mb(os.getpid()) - before

    gc.disable()
    try:
        assert asyncio.run(run()) < 60
    finally:
        gc.enable()
