"""Send twice as many requests as the server can answer, each with a deadline.

The experiment measures how many answers are in time and how soon the other requests are refused. The capacity is the
rate that wrk reaches in a closed loop with 8 connections. The peak goodput is the highest that open loops reach at 0.8
to 1 times the capacity.
"""

from __future__ import annotations

import math

from benchmarks.harness import ExperimentResult, Target, median, median_ratio, rotated_orders
from benchmarks.networks import network_bundle
from benchmarks.serving import edgekit_server
from benchmarks.serving.load import Wrk
from benchmarks.serving.open_loop import run_load
from benchmarks.serving.plan import ServingPlan, sample_of

TITLE = "goodput at twice the capacity, ResNet-8 in int8 on LiteRT, open loop, Poisson arrivals"
MODEL = "resnet8"
LOADS = (0.8, 0.9, 1.0, 2.0)
OVERLOAD = 2.0
SECONDS, CAPACITY_S, ALONE_S = 2.0, 1.0, 0.5
DEADLINE_CALLS, LEAST_DEADLINE_MS = 10, 20.0


def measure(plan: ServingPlan) -> ExperimentResult:
    """Measure the capacity and all loads in every round."""
    result = ExperimentResult("overload", TITLE)
    path = network_bundle(MODEL, "int8", "tflite")
    figures: dict[float, list[dict[str, float]]] = {share: [] for share in LOADS}
    capacities: list[float] = []
    with edgekit_server.create_server("overload", [path]) as server:
        result.notes += edgekit_server.validation_lines(server)
        post = edgekit_server.raw_request(MODEL, sample_of(path))
        wrk = Wrk("overload", server.address, post)
        unloaded = wrk.run(ALONE_S, 1)
        deadline_ms = max(LEAST_DEADLINE_MS, math.ceil(DEADLINE_CALLS * unloaded.p50_ms))
        for number, order in enumerate(rotated_orders(LOADS, plan.rounds)):
            capacities.append(wrk.run(CAPACITY_S * plan.scale).per_s)
            for share in order:
                rate = share * capacities[-1]
                figures[share].append(run_load(server.address, post, rate, SECONDS * plan.scale, deadline_ms, number))
    result.notes.append(
        f"deadline {deadline_ms:g} ms; capacity {median(capacities).text('{:.0f}')} a second; latencies count from the "
        "time at which a request was due; the load comes from benchmarks/serving/open_loop.py, because wrk waits for "
        "answers"
    )
    result.rounds = {"capacity": capacities, **{f"{share:g}": rows for share, rows in figures.items()}}
    fill_result(result, figures, deadline_ms)
    return result


COLUMNS = {
    "goodput": ("goodput/s", "{:.0f}"),
    "accepted_p99_ms": ("accepted p99 ms", "{:.1f}"),
    "refused_p50_ms": ("refused p50 ms", "{:.2f}"),
    "refused_p99_ms": ("refused p99 ms", "{:.2f}"),
    "refused_most_ms": ("most ms", "{:.1f}"),
    "client_lag_p99_ms": ("client's lag p99 ms", "{:.2f}"),
}


def fill_result(result: ExperimentResult, figures: dict[float, list[dict[str, float]]], deadline_ms: float) -> None:
    """Fill in a row for each load and the three verdicts."""
    count_titles = "due, 200, 503, expired, other, lost, no free connection"
    result.header = ("load", *(title for title, _ in COLUMNS.values()), count_titles)
    for share, rows in figures.items():
        cells = [median([row[key] for row in rows]).text(format_text) if not any(math.isnan(row[key]) for row in rows)
                 else "in some rounds none" for key, (_, format_text) in COLUMNS.items()]  # fmt: skip
        counts = [sum(int(row[key]) for row in rows)
                  for key in ("due", "accepted", "refused", "expired", "other", "unanswered", "blocked")]  # fmt: skip
        result.rows.append([f"{share:g} of capacity", *cells, ", ".join(map(str, counts))])
    goodput = {share: [row["goodput"] for row in rows] for share, rows in figures.items()}
    peak = max((share for share in LOADS if share != OVERLOAD), key=lambda share: median(goodput[share]).middle)
    overload_rows = figures[OVERLOAD]
    target_title = f"goodput at {OVERLOAD:g} times the capacity over the peak's (at {peak:g})"
    result.evaluate(Target(target_title, 0.95), median_ratio(goodput[OVERLOAD], goodput[peak]), "{:.3f}")
    if all(row["refused"] for row in overload_rows):
        target = Target("p99 of refusals, ms", 10.0, at_least=False)
        result.evaluate(target, median([row["refused_p99_ms"] for row in overload_rows]), "{:.2f}")
    else:
        result.missing.append("time of refusals: in some rounds nothing was refused")
    if all(row["accepted"] for row in overload_rows):
        target = Target("p99 of what was accepted, ms, against the deadline", deadline_ms, at_least=False)
        result.evaluate(target, median([row["accepted_p99_ms"] for row in overload_rows]), "{:.1f}")
