"""A model whose traced requests learn when their parts began and ended. What is not traced takes the usual way."""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import Any

import numpy as np

from edgekit.serve.batcher import Answer, Batcher, Job
from edgekit.serve.served import Served
from edgekit.serve.tracing.traced import CURRENT, Traced, error_type


class TracedBatcher(Batcher):
    """Knows which jobs are traced, and so which requests a call was for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._traced: dict[asyncio.Future[Answer], Traced] = {}

    def submit(self, x: np.ndarray, deadline_s: float) -> asyncio.Future[Answer] | Answer:
        """See Batcher."""
        made, traced = super().submit(x, deadline_s), CURRENT.get()
        if traced is not None and not isinstance(made, Answer):
            self._traced[made] = traced
            made.add_done_callback(lambda done: self._traced.pop(done, None))
        return made

    def _run_inline(self, x: np.ndarray) -> Answer:
        traced = CURRENT.get()
        if traced is None:
            return super()._run_inline(x)
        error, began_ns = "", perf_counter_ns()
        try:
            return super()._run_inline(x)
        except Exception as raised:
            error = error_type(raised)
            raise
        finally:
            traced.ran((began_ns, began_ns, perf_counter_ns()), error, len(x), ())

    def _finish(self, batch: list[Job], begun_s: float, outcome: np.ndarray | BaseException) -> None:
        found = [(job, self._traced[job.future]) for job in batch if job.future in self._traced] if self._traced else []
        if found:  # `monotonic` and `perf_counter` are one clock on Linux
            began_ns, ended_ns = int(begun_s * 1e9), perf_counter_ns()
            error = error_type(outcome) if isinstance(outcome, BaseException) else ""
            samples = sum(len(job.x) for job in batch)
            links = tuple(traced.context for _, traced in found) if len(batch) > 1 else ()
            for job, traced in found:
                traced.ran((int(job.arrived_s * 1e9), began_ns, ended_ns), error, samples, links)
        super()._finish(batch, begun_s, outcome)


class TracedServed(Served):
    """See Served."""

    batcher_kind = TracedBatcher

    def prepare(self, samples: np.ndarray) -> np.ndarray:
        """See Served."""
        traced = CURRENT.get()
        if traced is None:
            return super().prepare(samples)
        return np.asarray(traced.timed("preprocess", super().prepare, samples))

    def tensors(self, *arguments: Any) -> Any:
        """See Served."""
        traced = CURRENT.get()
        if traced is None:
            return super().tensors(*arguments)
        return traced.timed("postprocess", super().tensors, *arguments)

    def answers(self, *arguments: Any) -> Any:
        """See Served; `tensors` calls it too."""
        traced = CURRENT.get()
        if traced is None:
            return super().answers(*arguments)
        return traced.timed("postprocess", super().answers, *arguments)
