"""Twice as many requests as the server can answer, each with a deadline: what is in time, and how soon a no comes.

The capacity is wrk's closed loop with 8 connections. The peak's goodput is the best of open loops at 0.8 to 1 of it.
"""

from __future__ import annotations

import math

from benchmarks.harness import Finding, Target, median, quotient, turns
from benchmarks.networks import make
from benchmarks.serving import ours
from benchmarks.serving.load import Wrk
from benchmarks.serving.open_loop import load
from benchmarks.serving.subjects import Plan, sample_of

TITLE = "goodput at twice the capacity, ResNet-8 in int8 on LiteRT, open loop, Poisson arrivals"
MODEL = "resnet8"
LOADS = (0.8, 0.9, 1.0, 2.0)
OVERLOAD = 2.0
SECONDS, CAPACITY_S, ALONE_S = 2.0, 1.0, 0.5
DEADLINE_CALLS, LEAST_DEADLINE_MS = 10, 20.0


def measure(plan: Plan) -> Finding:
    """Capacity and all loads in every round."""
    finding = Finding("overload", TITLE)
    path = make(MODEL, "int8", "tflite")
    found: dict[float, list[dict[str, float]]] = {share: [] for share in LOADS}
    capacities: list[float] = []
    with ours.server("overload", [path]) as server:
        finding.notes += ours.proofs(server)
        post = ours.raw(MODEL, sample_of(path))
        wrk = Wrk("overload", server.address, post)
        alone = wrk.run(ALONE_S, 1)
        deadline_ms = max(LEAST_DEADLINE_MS, math.ceil(DEADLINE_CALLS * alone.p50_ms))
        for number, order in enumerate(turns(LOADS, plan.rounds)):
            capacities.append(wrk.run(CAPACITY_S * plan.scale).per_s)
            for share in order:
                rate = share * capacities[-1]
                found[share].append(load(server.address, post, rate, SECONDS * plan.scale, deadline_ms, number))
    finding.notes.append(
        f"deadline {deadline_ms:g} ms; capacity {median(capacities).text('{:.0f}')} a second; a latency counts "
        "from when the request was due; the load maker is benchmarks/serving/open_loop.py, for wrk waits for answers"
    )
    finding.rounds = {"capacity": capacities, **{f"{share:g}": rows for share, rows in found.items()}}
    tell(finding, found, deadline_ms)
    return finding


COLUMNS = {
    "goodput": ("goodput/s", "{:.0f}"),
    "accepted_p99_ms": ("accepted p99 ms", "{:.1f}"),
    "refused_p50_ms": ("refused p50 ms", "{:.2f}"),
    "refused_p99_ms": ("refused p99 ms", "{:.2f}"),
    "refused_most_ms": ("most ms", "{:.1f}"),
    "client_lag_p99_ms": ("client's lag p99 ms", "{:.2f}"),
}


def tell(finding: Finding, found: dict[float, list[dict[str, float]]], deadline_ms: float) -> None:
    """A row for each load, and the three verdicts."""
    counted = "due, 200, 503, expired, other, lost, no free connection"
    finding.header = ("load", *(title for title, _ in COLUMNS.values()), counted)
    for share, each in found.items():
        cells = [median([row[key] for row in each]).text(form) if not any(math.isnan(row[key]) for row in each)
                 else "in some rounds none" for key, (_, form) in COLUMNS.items()]  # fmt: skip
        counts = [sum(int(row[key]) for row in each)
                  for key in ("due", "accepted", "refused", "expired", "other", "unanswered", "blocked")]  # fmt: skip
        finding.rows.append([f"{share:g} of capacity", *cells, ", ".join(map(str, counts))])
    goodput = {share: [row["goodput"] for row in each] for share, each in found.items()}
    peak = max((share for share in LOADS if share != OVERLOAD), key=lambda share: median(goodput[share]).middle)
    over = found[OVERLOAD]
    what = f"goodput at {OVERLOAD:g} times the capacity over the peak's (at {peak:g})"
    finding.evaluate(Target(what, 0.95), quotient(goodput[OVERLOAD], goodput[peak]), "{:.3f}")
    if all(row["refused"] for row in over):
        target = Target("p99 of refusals, ms", 10.0, at_least=False)
        finding.evaluate(target, median([row["refused_p99_ms"] for row in over]), "{:.2f}")
    else:
        finding.missing.append("time of refusals: in some rounds nothing was refused")
    if all(row["accepted"] for row in over):
        target = Target("p99 of what was accepted, ms, against the deadline", deadline_ms, at_least=False)
        finding.evaluate(target, median([row["accepted_p99_ms"] for row in over]), "{:.1f}")
