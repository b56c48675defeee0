"""One model in one worker, watched: some of its samples are looked at between answers, and its golden vectors asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from time import monotonic
from typing import Any, Union

import numpy as np

from edgekit.device.monitor.monitor import Monitor
from edgekit.runner.errors import BackendError, RunnerError
from edgekit.runner.model import Model
from edgekit.serve.log import log, where

TICK_S = 0.5
"""Samples wait so long before they are looked at: many at once cost little more than one."""
STEP_S = 1e-3
MOST_AT_ONCE = 64
"""The loop is held up for about `STEP_S` at once, where a single sample does not take longer."""
MOST_SHARE = 0.02
"""Of the loop's time that looking takes: large samples cost milliseconds each, so fewer of them are looked at."""
SEND_S = 2.0
MOST_WAITING_BYTES = 32 << 20

Seen = Union["tuple[np.ndarray, np.ndarray]", RunnerError]


class Watcher:
    """`answered` and `refused` belong to the answer's path and only note something; `look` does the work."""

    def __init__(self, name: str, model: Model, pool: Executor | None, per_s: float, canary_s: float) -> None:
        """InputError where the bundle has no reference; `pool` is where the model runs, None: the loop's thread."""
        self._monitor = Monitor.of(model, canary_s=0.0)
        self._name, self._pool, self._per_s = name, pool, per_s
        manifest = model.manifest
        size = int(np.prod(manifest.raw.shape)) * np.dtype(manifest.raw.dtype).itemsize
        self._most = max(1, MOST_WAITING_BYTES // max(1, size))
        self._waiting: deque[Seen] = deque()
        self._tokens, self._filled_s = max(1.0, per_s), monotonic()
        self._cost_s = 0.0  # of looking at one sample, smoothed
        self._picked = 0
        self._at_once = 8
        self._canary_each_s = canary_s / len(model.golden()[0])
        self._canary_due_s = monotonic()
        self._asking: asyncio.Future[None] | None = None
        self._is_broken = False

    def answered(self, samples: np.ndarray, outputs: np.ndarray) -> None:
        """Note one of the samples (n, *raw) with its outputs (n, …), where it is time for one."""
        if not self._picks():
            return
        place = self._picked % len(samples)
        raw = samples[place] if len(samples) == 1 else samples[place].copy()  # a view would keep the others
        self._waiting.append((raw, outputs[place].copy()))

    def refused(self, error: RunnerError) -> None:
        """Note a sample without an answer; they are picked as those with one are, so that their share is right."""
        if self._picks():
            self._waiting.append(error)

    def _picks(self) -> bool:
        now = monotonic()
        per_s = min(self._per_s, MOST_SHARE / self._cost_s) if self._cost_s else self._per_s
        self._tokens = min(max(1.0, self._per_s), self._tokens + (now - self._filled_s) * per_s)
        self._filled_s = now
        if self._tokens < 1 or len(self._waiting) >= self._most or self._is_broken:
            return False
        self._tokens -= 1
        self._picked += 1
        return True

    async def tick(self) -> None:
        """Look at what waits, a little at a time, and ask a golden vector where one is due."""
        if self._is_broken:
            return
        try:
            while self._waiting:
                self._look()
                await asyncio.sleep(0)
            if not self._is_broken:  # the model may have been let go of meanwhile
                self._canary()
        except Exception as error:  # the answers go on
            self.close()
            log(f"{self._name}: is not watched any more: {where(error)}")

    def close(self) -> None:
        """Look at nothing more; the model is let go of."""
        self._is_broken = True
        self._waiting.clear()

    def sketch(self) -> dict[str, Any] | None:
        """What was seen since this worker opened the model; None where watching has ended."""
        return None if self._is_broken else self._monitor.sketch()

    def _look(self) -> None:
        begun = monotonic()
        now = [self._waiting.popleft() for _ in range(min(self._at_once, len(self._waiting)))]
        good = [each for each in now if isinstance(each, tuple) and np.isfinite(each[1]).all()]
        if good:
            raws, outputs = zip(*good)
            self._monitor.observe(np.stack(raws), np.stack(outputs))
        for each in now:
            if isinstance(each, RunnerError):
                self._monitor.refused(each)
        for _ in range(sum(isinstance(each, tuple) for each in now) - len(good)):
            self._monitor.refused(BackendError("the outputs are not finite"))
        took_s = monotonic() - begun
        self._cost_s += (took_s / len(now) - self._cost_s) * (0.1 if self._cost_s else 1.0)
        if took_s > STEP_S:
            self._at_once = max(1, self._at_once // 2)
        elif len(now) == self._at_once:
            self._at_once = min(MOST_AT_ONCE, 2 * self._at_once)

    def _canary(self) -> None:
        """Not awaited: a model that takes long, or hangs, holds up those who watch the others else."""
        if self._asking is not None:
            if not self._asking.done():
                return
            asked, self._asking = self._asking, None
            asked.result()
        if not self._canary_each_s or monotonic() < self._canary_due_s:
            return
        self._canary_due_s = monotonic() + self._canary_each_s
        if self._pool is None:
            self._monitor.canary_one()
        else:
            self._asking = asyncio.get_running_loop().run_in_executor(self._pool, self._monitor.canary_one)


async def watch(watchers: Callable[[], Iterable[tuple[str, Watcher]]], send: Callable[[dict[str, Any]], None]) -> None:
    """For as long as the worker serves: `watchers` are those of now, by identity; `send` brings sketches on."""
    due_s = 0.0
    while True:
        for _, watcher in watchers():
            await watcher.tick()
        if monotonic() >= due_s:
            due_s = monotonic() + SEND_S
            found = {identity: sketch for identity, watcher in watchers() if (sketch := watcher.sketch()) is not None}
            if found:
                send(found)
        await asyncio.sleep(TICK_S)
