"""Is a model still right? Workers look at some samples between answers; the supervisor merges what they saw and judges.

A verdict stops nothing; it is reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from time import monotonic
from typing import Any, Union

import numpy as np

from edgekit.device.monitor import health_metrics
from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.monitor import Monitor
from edgekit.device.monitor.reference import read_reference
from edgekit.device.monitor.verdict import Verdict
from edgekit.runner import bundle as bundles
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.runner.model import Model
from edgekit.serve.log import log, where
from edgekit.serve.repository import Entry

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


SAID_AGAIN_S = 600.0
"""A verdict that comes and goes is said once in so long."""
SHOWN_FINDINGS = 16
"""The strongest, to the workers and the page; metrics have all."""
COUNTED = ("samples", "runs", "failures")


class _Model:
    """One bundle: what it is held against, what each worker saw, and what follows."""

    def __init__(self, entry: Entry) -> None:
        bundle = bundles.read(entry.bundle.source)
        self.name, self.version, self.manifest = entry.names[0], entry.bundle.version, bundle.manifest
        if bundle.manifest.reference is None or bundle.identity != entry.bundle.identity:
            raise InputError("its bundle has no reference.json; make it again")
        self.reference = read_reference(bundle.members[bundle.manifest.reference], bundle.manifest)
        self.sketches: dict[int, dict[str, Any]] = {}
        self.lives: dict[int, int] = {}
        self.before = self.judged = dict.fromkeys(COUNTED, 0)
        self.merged: dict[str, Any] = {}
        self.verdict: Verdict | None = None
        self._level = "sound"
        self._said_s: dict[str, float] = {}

    def said(self, worker: int, life: int, sketch: dict[str, Any]) -> None:
        """What a worker saw since it began; what one saw that has ended stays in the counts."""
        if self.lives.setdefault(worker, life) != life:
            self.lives[worker] = life
            counts = _counts(self.sketches[worker])
            self.before = {name: count + counts[name] for name, count in self.before.items()}
        self.sketches[worker] = sketch

    def families(self, verdict: Verdict) -> list[Family]:
        """For metrics. Counters never go back: they hold what workers saw that have ended, which no verdict does."""
        counts, merged = self.judged, dict(self.merged)
        if merged["canary"] is not None:
            canary = merged["canary"]
            merged["canary"] = {**canary, **{name: canary[name] + counts[name] for name in ("runs", "failures")}}
        told = replace(verdict, samples=verdict.samples + counts["samples"])
        return health_metrics.health_families(told, merged, model=self.name, version=self.version)

    def evaluate(self) -> dict[str, Any] | None:
        """For the workers; None where nobody has seen anything yet."""
        if not self.sketches:
            return None
        self.judged = self.before
        self.merged = Monitor.merge(list(self.sketches.values()))
        self.verdict = verdict = Verdict.of(self.manifest, self.reference, self.merged)
        self._say(verdict)
        facts = verdict.to_dict()
        return {**facts, "findings": facts["findings"][:SHOWN_FINDINGS]}

    def _say(self, verdict: Verdict) -> None:
        level = "sound" if verdict.level == "early" else verdict.level
        if level == self._level:
            return
        self._level = level
        if monotonic() - self._said_s.get(level, -SAID_AGAIN_S) >= SAID_AGAIN_S:
            self._said_s[level] = monotonic()
            log(f"{self.name} {self.version} is {level}: {verdict.reason}")


class Verdicts:
    """Of all models that have a reference, by the identity of their bundles."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def watch(self, entries: Iterable[Entry]) -> None:
        """From now on exactly these; what is known of one that stays is kept."""
        found = {}
        for entry in entries:
            identity = entry.bundle.identity
            try:
                found[identity] = self._models.get(identity) or _Model(entry)
            except RunnerError as error:
                log(f"{entry.names[0]} {entry.bundle.version}: is not watched: {error}")
        self._models = found

    def said(self, worker: int, life: int, sketches: dict[str, dict[str, Any]]) -> None:
        """What a worker saw since it began, which replaces what it said before; `life` is another once it is new."""
        for identity, sketch in sketches.items():
            if identity in self._models:
                self._models[identity].said(worker, life, sketch)

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Verdicts as JSON, by identity."""
        found = {}
        for identity, model in list(self._models.items()):
            try:
                facts = model.evaluate()
            except Exception as error:  # the others are judged all the same
                del self._models[identity]
                log(f"{model.name} {model.version}: is not watched any more: {where(error)}")
                continue
            if facts is not None:
                found[identity] = facts
        return found

    def families(self) -> list[Family]:
        """For metrics, as of the last `evaluate`."""
        return [
            family
            for each in self._models.values()
            if each.verdict is not None
            for family in each.families(each.verdict)
        ]


def _counts(sketch: dict[str, Any]) -> dict[str, int]:
    canary = sketch["canary"] or {}
    return {"samples": sketch["samples"], "runs": canary.get("runs", 0), "failures": canary.get("failures", 0)}
