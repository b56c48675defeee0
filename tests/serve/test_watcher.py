"""One watched model in a worker: what is wrong with it holds up nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edgekit.runner.loader import load
from edgekit.runner.model import Model
from edgekit.serve.watch import Watcher
from tests.serve import cached
from tests.serve.watched import ordinary_images, with_reference


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(with_reference(cached.tiny(tmp_path_factory.mktemp("watched"))))


def runs(watcher: Watcher) -> int:
    sketch = watcher.sketch()
    return 0 if sketch is None or sketch["canary"] is None else int(sketch["canary"]["runs"])


def test_a_model_that_hangs_does_not_hold_up_those_who_watch_the_others(model: Model) -> None:
    ended = threading.Event()

    async def watched(pool: ThreadPoolExecutor) -> list[int]:
        watcher = Watcher("tiny", model, pool, 1.0, 1e-3)
        try:
            for _ in range(3):
                await asyncio.wait_for(watcher.tick(), 10)
            found = [runs(watcher)]
        finally:
            ended.set()
        while runs(watcher) < 2:
            await watcher.tick()
            await asyncio.sleep(0.01)
        return [*found, runs(watcher)]

    with ThreadPoolExecutor(1) as pool:
        pool.submit(ended.wait)
        before, after = asyncio.run(asyncio.wait_for(watched(pool), 30))
    assert before == 0
    assert after >= 2


def test_an_unloaded_model_is_no_longer_monitored_and_nothing_is_logged(
    model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    async def watched() -> None:
        pool = ThreadPoolExecutor(1)
        watcher = Watcher("tiny", model, pool, 1.0, 1e-3)
        pool.shutdown()
        watcher.close()
        await watcher.tick()
        assert watcher.sketch() is None

    asyncio.run(watched())
    assert capfd.readouterr().err == ""


def test_looking_at_samples_takes_a_small_share_of_the_time_however_many_are_asked_for(model: Model) -> None:
    per_s = 5000.0
    watcher = Watcher("tiny", model, None, per_s, 0.0)
    images = ordinary_images(64, 5)
    outputs = np.stack([model.execute(model.prepare(image)) for image in images])

    async def offered(seconds: float) -> int:
        """So long without end; how many have been looked at since the watcher was made."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for image, output in zip(images, outputs):
                watcher.note_answer(image[None], output[None])
            await watcher.tick()
        sketch = watcher.sketch()
        assert sketch is not None
        return int(sketch["samples"])

    async def watched() -> list[int]:
        found = [0]
        while found[-1] < per_s:  # what it may take at once
            found.append(await offered(0.2))
        return [found[-1], await offered(1.0)]

    first, second = asyncio.run(asyncio.wait_for(watched(), 60))
    assert 0 < second - first < per_s / 2
