"""What a server takes that nobody asks, and the memory of a worker that has answered a thousand requests."""

from __future__ import annotations

import time

from benchmarks.harness import Finding, Target, median
from benchmarks.serving import ours
from benchmarks.serving.load import Wrk
from benchmarks.serving.machine import ran_s, tree
from benchmarks.serving.subjects import Plan, sample_of

TITLE = "CPU of an idle server, and memory of a worker on LiteRT, one model"
STARTS = 2
IDLE_S, SETTLE_S = 20.0, 1.0
REQUESTS = 1000


def measure(plan: Plan) -> Finding:
    """Each start is measured once; few starts, for these figures hardly differ."""
    finding = Finding("rest", TITLE)
    path = plan.digits("tflite")
    post = ours.raw("digits", sample_of(path))
    idle: list[float] = []
    worker_mb: list[float] = []
    supervisor_mb: list[float] = []
    answered: list[int] = []
    for _ in range(min(STARTS, plan.rounds)):
        with ours.server("rest", [path]) as server:
            time.sleep(SETTLE_S)
            before, begun = ran_s(server.pid), time.monotonic()
            time.sleep(IDLE_S * plan.scale)
            idle.append(100 * (ran_s(server.pid) - before) / (time.monotonic() - begun))
            wrk, count = Wrk("rest", server.address, post), 0
            while count < REQUESTS:
                count += wrk.run(0.2).answered
            supervisor, worker = tree(server.pid)
            worker_mb.append(worker.memory_full_info().pss / 1e6)
            supervisor_mb.append(supervisor.memory_full_info().pss / 1e6)
            answered.append(count)
    finding.rounds = {
        "idle_percent": idle, "worker_mb": worker_mb, "supervisor_mb": supervisor_mb, "answered_before": answered
    }  # fmt: skip
    finding.header = ("of each start", "least and most")
    finding.rows = [
        [f"CPU of all processes, {IDLE_S * plan.scale:g} s idle, % of a core", median(idle).text("{:.3f}")],
        [f"PSS of the worker after {min(answered)} requests or more, MB", median(worker_mb).text("{:.1f}")],
        ["PSS of the supervisor, MB", median(supervisor_mb).text("{:.1f}")],
    ]
    finding.evaluate(Target("CPU of an idle server, % of a core", 0.5, at_least=False), median(idle), "{:.3f}")
    finding.evaluate(Target("PSS of a worker, MB", 60.0, at_least=False), median(worker_mb), "{:.1f}")
    return finding
