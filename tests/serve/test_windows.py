"""The windows of a recording run together where that pays, each with the answer that it has alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.serve.batcher import BatchCurve, Batcher
from tests.serve import in_process
from tests.serve.in_process import PendingRequest

WINDOWS = 9


def recording() -> bytes:
    """Windows of four rows."""
    rows = np.random.default_rng(3).normal(0, 1, (4 * WINDOWS, 3))
    return "\n".join(["ax,ay,az", *(",".join(f"{value:.4f}" for value in row) for row in rows)]).encode()


async def predicted(path: Path, ms: dict[int, float]) -> tuple[list[dict[str, Any]], list[int]]:
    """Answers to the recording, and the sizes of the calls that made them, where calls take so long."""
    one, calls = in_process.worker(), []
    await one.serve([in_process.entry(path, 1.0)])
    [served] = one.app.distinct()

    def execute(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        return np.stack([served.model.execute(each[None]) for each in x])

    served.curve = BatchCurve(ms)
    served.batcher = Batcher(execute, served.curve, limit=256)
    request = PendingRequest(one, "/predict", method="PUT")
    request.send(recording())
    reply = await request.reply()
    assert reply.status == 200, reply
    served.close()
    return reply.json()["answers"], calls


@pytest.mark.parametrize(("ms", "sizes"), [({1: 5.0, 4: 6.0}, [4, 4, 1]), ({1: 5.0, 4: 30.0}, [1] * WINDOWS)])
def test_windows_run_in_batches_of_the_size_that_pays(kinds: Path, ms: dict[int, float], sizes: list[int]) -> None:
    path = kinds / "table.edge.zip"
    answers, calls = asyncio.run(predicted(path, ms))
    alone, _ = asyncio.run(predicted(path, {1: 5.0}))
    assert calls == sizes
    assert len(answers) == WINDOWS and answers == alone
