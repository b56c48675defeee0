"""Watch served models for drift: workers summarize some samples, and the supervisor evaluates the merged summaries.

A verdict is only reported. It never stops a model from being served.
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
from edgekit.serve.repository import RepositoryEntry

TICK_S = 0.5
"""How long samples are collected before they are examined together, which costs little more than examining one."""
STEP_S = 1e-3
MAX_STEP_SAMPLES = 64
"""One step examines as many samples as take about `STEP_S`, but at least one and at most `MAX_STEP_SAMPLES`."""
MAX_LOOP_SHARE = 0.02
"""The share of the event loop's time that watching may take. If examining a sample takes long, fewer samples are
examined."""
SEND_S = 2.0
MAX_WAITING_BYTES = 32 << 20

Observation = Union["tuple[np.ndarray, np.ndarray]", RunnerError]


class Watcher:
    """Watches the samples of one model.

    `note_answer` and `note_refusal` are called while a request is answered, so they only store something; `tick` does
    the work.
    """

    def __init__(self, name: str, model: Model, pool: Executor | None, per_s: float, canary_s: float) -> None:
        """Start to watch a model. Raises InputError if its bundle has no reference.

        `pool` is where the model runs, None if it runs in the event loop's thread.
        """
        self._monitor = Monitor.of(model, canary_s=0.0)
        self._name, self._pool, self._per_s = name, pool, per_s
        manifest = model.manifest
        size = int(np.prod(manifest.raw.shape)) * np.dtype(manifest.raw.dtype).itemsize
        self._max_waiting = max(1, MAX_WAITING_BYTES // max(1, size))
        self._waiting: deque[Observation] = deque()
        self._tokens, self._filled_s = max(1.0, per_s), monotonic()
        self._cost_s = 0.0  # smoothed time that examining one sample takes
        self._sample_count = 0
        self._step_samples = 8
        self._canary_interval_s = canary_s / len(model.golden()[0])
        self._canary_due_s = monotonic()
        self._canary_run: asyncio.Future[None] | None = None
        self._is_broken = False

    def note_answer(self, samples: np.ndarray, outputs: np.ndarray) -> None:
        """Store one of the samples (n, *raw) with its row of the outputs (n, …), if it is time for another sample."""
        if not self._is_sample_due():
            return
        index = self._sample_count % len(samples)
        raw = samples[index] if len(samples) == 1 else samples[index].copy()  # a view would keep all samples in memory
        self._waiting.append((raw, outputs[index].copy()))

    def note_refusal(self, error: RunnerError) -> None:
        """Store the refusal of a sample, if it is time for another sample.

        Refusals are chosen at the same rate as answers, so that their share among the stored samples is right.
        """
        if self._is_sample_due():
            self._waiting.append(error)

    def _is_sample_due(self) -> bool:
        now = monotonic()
        per_s = min(self._per_s, MAX_LOOP_SHARE / self._cost_s) if self._cost_s else self._per_s
        self._tokens = min(max(1.0, self._per_s), self._tokens + (now - self._filled_s) * per_s)
        self._filled_s = now
        if self._tokens < 1 or len(self._waiting) >= self._max_waiting or self._is_broken:
            return False
        self._tokens -= 1
        self._sample_count += 1
        return True

    async def tick(self) -> None:
        """Examine the stored samples in small steps, and run a golden sample if one is due."""
        if self._is_broken:
            return
        try:
            while self._waiting:
                self._observe_waiting()
                await asyncio.sleep(0)
            if not self._is_broken:  # the model may have been closed while the samples were examined
                self._run_canary()
        except Exception as error:  # only the watching ends; requests are still answered
            self.close()
            log(f"{self._name}: is no longer watched: {where(error)}")

    def close(self) -> None:
        """Stop watching, because the model is about to be closed."""
        self._is_broken = True
        self._waiting.clear()

    def sketch(self) -> dict[str, Any] | None:
        """Return a summary of the samples since this worker opened the model; None if watching has ended."""
        return None if self._is_broken else self._monitor.sketch()

    def _observe_waiting(self) -> None:
        started_s = monotonic()
        observations = [self._waiting.popleft() for _ in range(min(self._step_samples, len(self._waiting)))]
        finite = [each for each in observations if isinstance(each, tuple) and np.isfinite(each[1]).all()]
        if finite:
            raws, outputs = zip(*finite)
            self._monitor.observe(np.stack(raws), np.stack(outputs))
        for each in observations:
            if isinstance(each, RunnerError):
                self._monitor.refused(each)
        for _ in range(sum(isinstance(each, tuple) for each in observations) - len(finite)):
            self._monitor.refused(BackendError("the outputs are not finite"))
        took_s = monotonic() - started_s
        self._cost_s += (took_s / len(observations) - self._cost_s) * (0.1 if self._cost_s else 1.0)
        if took_s > STEP_S:
            self._step_samples = max(1, self._step_samples // 2)
        elif len(observations) == self._step_samples:
            self._step_samples = min(MAX_STEP_SAMPLES, 2 * self._step_samples)

    def _run_canary(self) -> None:
        """Run a golden sample if one is due.

        The call is not awaited, because a slow or hanging model would otherwise delay the watching of the others.
        """
        if self._canary_run is not None:
            if not self._canary_run.done():
                return
            finished, self._canary_run = self._canary_run, None
            finished.result()
        if not self._canary_interval_s or monotonic() < self._canary_due_s:
            return
        self._canary_due_s = monotonic() + self._canary_interval_s
        if self._pool is None:
            self._monitor.canary_one()
        else:
            self._canary_run = asyncio.get_running_loop().run_in_executor(self._pool, self._monitor.canary_one)


async def watch(watchers: Callable[[], Iterable[tuple[str, Watcher]]], send: Callable[[dict[str, Any]], None]) -> None:
    """Run all watchers until this coroutine is cancelled.

    `watchers` returns the current watchers, each with the identity of its bundle. `send` passes their sketches, which
    are summaries of the samples that they have examined, to the supervisor.
    """
    due_s = 0.0
    while True:
        for _, watcher in watchers():
            await watcher.tick()
        if monotonic() >= due_s:
            due_s = monotonic() + SEND_S
            sketches = {
                identity: sketch for identity, watcher in watchers() if (sketch := watcher.sketch()) is not None
            }
            if sketches:
                send(sketches)
        await asyncio.sleep(TICK_S)


LOG_INTERVAL_S = 600.0
"""If a verdict changes back and forth, the same verdict is logged at most once in this time."""
MAX_FINDINGS = 16
"""Number of findings, the strongest first, that are sent to the workers for the page. Metrics have all of them."""
COUNTED = ("samples", "runs", "failures")


class _WatchedModel:
    """One watched bundle: its reference, the sketches of all workers, and the verdict."""

    def __init__(self, entry: RepositoryEntry) -> None:
        bundle = bundles.read(entry.bundle.source)
        self.name, self.version, self.manifest = entry.names[0], entry.bundle.version, bundle.manifest
        if bundle.manifest.reference is None or bundle.identity != entry.bundle.identity:
            raise InputError("its bundle has no reference.json; build the bundle again")
        self.reference = read_reference(bundle.members[bundle.manifest.reference], bundle.manifest)
        self.sketches: dict[int, dict[str, Any]] = {}
        self.process_ids: dict[int, int] = {}
        self.ended_counts = self.evaluated_counts = dict.fromkeys(COUNTED, 0)
        self.merged: dict[str, Any] = {}
        self.verdict: Verdict | None = None
        self._level = "healthy"
        self._logged_s: dict[str, float] = {}

    def receive_sketch(self, worker: int, process_id: int, sketch: dict[str, Any]) -> None:
        """Store the sketch of a worker, which covers the time since the start of its process.

        If the worker was restarted, the counts of its earlier process are added to those of ended processes.
        """
        if self.process_ids.setdefault(worker, process_id) != process_id:
            self.process_ids[worker] = process_id
            counts = _counts(self.sketches[worker])
            self.ended_counts = {name: count + counts[name] for name, count in self.ended_counts.items()}
        self.sketches[worker] = sketch

    def families(self, verdict: Verdict) -> list[Family]:
        """Return the metrics of the model.

        Unlike the verdict, the counters include workers that have ended, because counters must never decrease.
        """
        counts, merged = self.evaluated_counts, dict(self.merged)
        if merged["canary"] is not None:
            canary = merged["canary"]
            merged["canary"] = {**canary, **{name: canary[name] + counts[name] for name in ("runs", "failures")}}
        whole_verdict = replace(verdict, samples=verdict.samples + counts["samples"])
        return health_metrics.health_families(whole_verdict, merged, model=self.name, version=self.version)

    def evaluate(self) -> dict[str, Any] | None:
        """Return the verdict for the workers; None if no worker has sent a sketch yet."""
        if not self.sketches:
            return None
        self.evaluated_counts = self.ended_counts
        self.merged = Monitor.merge(list(self.sketches.values()))
        self.verdict = verdict = Verdict.of(self.manifest, self.reference, self.merged)
        self._log_change(verdict)
        facts = verdict.to_dict()
        return {**facts, "findings": facts["findings"][:MAX_FINDINGS]}

    def _log_change(self, verdict: Verdict) -> None:
        level = "healthy" if verdict.level == "early" else verdict.level
        if level == self._level:
            return
        self._level = level
        if monotonic() - self._logged_s.get(level, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged_s[level] = monotonic()
            log(f"{self.name} {self.version}: health {level}: {verdict.reason}")


class Verdicts:
    """The verdicts on all models that have a reference, by the identity of their bundles."""

    def __init__(self) -> None:
        self._models: dict[str, _WatchedModel] = {}

    def watch(self, entries: Iterable[RepositoryEntry]) -> None:
        """Watch exactly these models from now on. Models that were watched before keep their sketches."""
        models = {}
        for entry in entries:
            identity = entry.bundle.identity
            try:
                models[identity] = self._models.get(identity) or _WatchedModel(entry)
            except RunnerError as error:
                log(f"{entry.names[0]} {entry.bundle.version}: is not watched: {error}")
        self._models = models

    def receive_sketches(self, worker: int, process_id: int, sketches: dict[str, dict[str, Any]]) -> None:
        """Store the sketches of a worker in place of its earlier ones. Each covers all the time since the worker began.

        `process_id` changes if the worker is restarted.
        """
        for identity, sketch in sketches.items():
            if identity in self._models:
                self._models[identity].receive_sketch(worker, process_id, sketch)

    def evaluate(self) -> dict[str, dict[str, Any]]:
        """Evaluate all models, and return their verdicts as JSON values by identity."""
        verdicts = {}
        for identity, model in list(self._models.items()):
            try:
                facts = model.evaluate()
            except Exception as error:  # the other models are evaluated nevertheless
                del self._models[identity]
                log(f"{model.name} {model.version}: is no longer watched: {where(error)}")
                continue
            if facts is not None:
                verdicts[identity] = facts
        return verdicts

    def families(self) -> list[Family]:
        """Return the metrics as of the last `evaluate`."""
        return [
            family
            for each in self._models.values()
            if each.verdict is not None
            for family in each.families(each.verdict)
        ]


def _counts(sketch: dict[str, Any]) -> dict[str, int]:
    canary = sketch["canary"] or {}
    return {"samples": sketch["samples"], "runs": canary.get("runs", 0), "failures": canary.get("failures", 0)}
