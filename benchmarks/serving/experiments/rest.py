"""The CPU that an idle server uses, and the memory of a worker that has answered a thousand requests."""

from __future__ import annotations

import time

from benchmarks.harness import ExperimentResult, Target, median
from benchmarks.serving import edgekit_server
from benchmarks.serving.load import Wrk
from benchmarks.serving.machine import process_tree, thread_time_s
from benchmarks.serving.plan import ServingPlan, sample_of

TITLE = "CPU of an idle server, and memory of a worker on LiteRT, one model"
STARTS = 2
IDLE_S, SETTLE_S = 20.0, 1.0
REQUESTS = 1000


def measure(plan: ServingPlan) -> ExperimentResult:
    """Start the server a few times and measure it once for each start, because these figures hardly differ."""
    result = ExperimentResult("rest", TITLE)
    path = plan.digits("tflite")
    post = edgekit_server.raw_request("digits", sample_of(path))
    idle_percent: list[float] = []
    worker_mb: list[float] = []
    supervisor_mb: list[float] = []
    answered: list[int] = []
    for _ in range(min(STARTS, plan.rounds)):
        with edgekit_server.create_server("rest", [path]) as server:
            time.sleep(SETTLE_S)
            time_before, started = thread_time_s(server.pid), time.monotonic()
            time.sleep(IDLE_S * plan.scale)
            idle_percent.append(100 * (thread_time_s(server.pid) - time_before) / (time.monotonic() - started))
            wrk, count = Wrk("rest", server.address, post), 0
            while count < REQUESTS:
                count += wrk.run(0.2).answered
            supervisor, worker = process_tree(server.pid)
            worker_mb.append(worker.memory_full_info().pss / 1e6)
            supervisor_mb.append(supervisor.memory_full_info().pss / 1e6)
            answered.append(count)
    result.rounds = {
        "idle_percent": idle_percent,
        "worker_mb": worker_mb,
        "supervisor_mb": supervisor_mb,
        "answered_before": answered,
    }
    result.header = ("of each start", "least and most")
    result.rows = [
        [f"CPU of all processes, {IDLE_S * plan.scale:g} s idle, % of a core", median(idle_percent).text("{:.3f}")],
        [f"PSS of the worker after {min(answered)} requests or more, MB", median(worker_mb).text("{:.1f}")],
        ["PSS of the supervisor, MB", median(supervisor_mb).text("{:.1f}")],
    ]
    result.evaluate(Target("CPU of an idle server, % of a core", 0.5, at_least=False), median(idle_percent), "{:.3f}")
    result.evaluate(Target("PSS of a worker, MB", 60.0, at_least=False), median(worker_mb), "{:.1f}")
    return result
