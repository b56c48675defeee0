"""A request that ends without an answer is counted once, whatever ended it."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

import numpy as np
import pytest

from edgekit.serve.batcher import BatchCurve, Batcher
from edgekit.serve.counters import FIELDS, NO_MODEL, ModelRequest, SharedCounters, count_early_refusal
from edgekit.serve.errors import ClientDisconnected, Reason, RequestError
from edgekit.serve.request import MemoryBudget

FOR_EVER = float("inf")


@dataclass
class Model:
    """As far as a request is counted."""

    row: memoryview
    watcher: None = None
    users: int = 0


def ended(error: BaseException) -> dict[str, int]:
    """The counters after a request to a model that ends with this error."""
    memory = SharedCounters(1)
    try:
        with ModelRequest(Model(memory.row(0, 3)), time.perf_counter_ns(), MemoryBudget(0)):
            raise error
    except RequestError as refusal:
        count_early_refusal(memory.row(0, NO_MODEL), refusal)
    except (ClientDisconnected, asyncio.CancelledError):
        pass
    sums = [memory.sums(slot) for slot in (3, NO_MODEL)]
    return {reason: count for reason in Reason if (count := sum(each[f"refused_{reason}"] for each in sums))}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RequestError(400, "body: too short"), "invalid"),
        (RequestError(413, "body: too long"), "too_large"),
        (RequestError(415, "body: a form"), "unsupported"),
        (RequestError(500, "the outputs are not finite"), "failed"),
        (ValueError("nobody expected it"), "failed"),
        (ClientDisconnected(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_each_end_has_one_reason(error: BaseException, reason: str) -> None:
    assert ended(error) == {reason: 1}


def test_an_unexpected_error_reaches_the_client_as_500_alone(capfd: pytest.CaptureFixture[str]) -> None:
    row = SharedCounters(1).row(0, 0)
    with (
        pytest.raises(RequestError, match="^internal error$") as caught,
        ModelRequest(Model(row), time.perf_counter_ns(), MemoryBudget(0)),
    ):
        raise ValueError("a secret of the client")
    assert caught.value.status == 500
    assert row[FIELDS["fail_count"]] == 1
    assert re.search(r"ValueError at serve/test_counted\.py:\d+ test_an_unexpected", stderr := capfd.readouterr().err)
    assert "secret" not in stderr


def test_a_full_queue_is_busy_and_a_deadline_is_late() -> None:
    async def refusals() -> list[str]:
        batcher = Batcher(lambda x: x, BatchCurve({1: 100.0, 2: 101.0}), limit=2)
        x = np.zeros((2, 1), np.float32)
        waits = batcher.submit(x, FOR_EVER)
        found: list[str] = []
        for deadline_s in (FOR_EVER, time.monotonic() + 0.001):
            try:
                batcher.submit(x[: 2 if deadline_s == FOR_EVER else 0], deadline_s)
            except RequestError as refusal:
                found += ended(refusal)
        assert isinstance(waits, asyncio.Future)
        await waits
        return found

    assert asyncio.run(refusals()) == ["busy", "late"]


def test_a_model_that_takes_a_slot_begins_at_zero_in_every_worker() -> None:
    memory = SharedCounters(2)
    for worker in (0, 1):
        with pytest.raises(RequestError), ModelRequest(Model(memory.row(worker, 5)), 0, MemoryBudget(0)):
            raise RequestError(400, "x")
    assert memory.sums(5)["refused_invalid"] == 2
    memory.clear(5)
    assert set(memory.sums(5).values()) == {0}
    assert memory.percentiles_ms(5, "success") == {"p50_ms": None, "p95_ms": None, "p99_ms": None}
