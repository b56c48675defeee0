"""Answers per CPU-second for the digits winner, compared with other servers.

While one server is measured, all others are paused.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from benchmarks.harness import ExperimentResult, NotRun, Target, median, median_ratio, rotated_orders
from benchmarks.serving import edgekit_server
from benchmarks.serving.load import Wrk
from benchmarks.serving.machine import Server, cpu_s
from benchmarks.serving.peers import PEERS, SETUPS, ServedModel
from benchmarks.serving.plan import ServingPlan, sample_of

TITLE = "answers per CPU-second, digits' winner, one raw sample a request, wrk with 8 connections"
OURS = "edgekit, raw body"
OURS_BINARY = "edgekit, binary tensor"
SECONDS, WARM_S = 2.0, 0.5
MODEL = "digits"


def measure(plan: ServingPlan) -> ExperimentResult:
    """Measure all servers that could be started in interleaved rounds."""
    result = ExperimentResult("peers", TITLE)
    with ExitStack() as stack:
        server = stack.enter_context(edgekit_server.create_server("ours", [plan.bundles]))
        subject = served_model(plan, server)
        input_name = edgekit_server.get_json(server.address, f"/v2/models/{MODEL}")["inputs"][0]["name"]
        running = {
            OURS: (server, Wrk("ours", server.address, edgekit_server.raw_request(MODEL, subject.sample))),
            OURS_BINARY: (
                server,
                Wrk("ours-binary", server.address, edgekit_server.binary_request(MODEL, subject.sample, input_name)),
            ),
        }
        result.notes.append(
            f"the winner here is {subject.bundle.name} on {subject.interpreter}; {subject.sample.nbytes} bytes a sample"
        )
        result.notes += edgekit_server.validation_lines(server)
        for peer, setup in [(peer, setup) for peer in PEERS for setup in SETUPS]:
            name = f"{peer.name}, {setup}"
            try:
                peer_server = stack.enter_context(peer.create(subject, setup))
                wrk = Wrk(peer_server.name, peer_server.address, peer.request(subject, setup))
                wrk.run(WARM_S)
                peer_server.pause()
                running[name] = peer_server, wrk
            except NotRun as reason:
                result.missing.append(f"{name}: {reason}")
        server.pause()
        result.rounds = measure_rounds(plan, running, result)
    fill_result(result)
    return result


def served_model(plan: ServingPlan, server: Server) -> ServedModel:
    """Return the bundle that the server uses for the name without a target, which is the fastest on this machine."""
    facts = edgekit_server.get_json(server.address, f"/v2/models/{MODEL}")
    target = facts["platform"].removeprefix("edgekit_")
    path = plan.digits(target)
    return ServedModel(path, target, edgekit_server.chosen_interpreter(server.address, MODEL), sample_of(path))


def measure_rounds(
    plan: ServingPlan, running: dict[str, tuple[Server, Wrk]], result: ExperimentResult
) -> dict[str, list[list[float]]]:
    """Return, for each server, a row for each round: CPU seconds, answers, answers per second, p50 and p99 in ms."""
    figures: dict[str, list[list[float]]] = {name: [] for name in running}
    for order in rotated_orders(list(running), plan.rounds):
        for name in order:
            if name not in figures:
                continue
            server, wrk = running[name]
            server.resume()
            try:
                wrk.run(WARM_S)
                cpu_before = cpu_s(server.pid)
                load = wrk.run(SECONDS * plan.scale)
                cpu_seconds = cpu_s(server.pid) - cpu_before
                figures[name].append([cpu_seconds, load.answered, load.per_s, load.p50_ms, load.p99_ms])
            except NotRun as reason:  # without all rounds, its figures could not be compared with others
                result.missing.append(f"{name}: after {len(figures.pop(name))} rounds: {reason}")
            finally:
                server.pause()
    return figures


def fill_result(result: ExperimentResult) -> None:
    """Fill in the table and the verdicts."""
    figures = {name: rows for name, rows in result.rounds.items() if rows}
    result.header = ("server", "CPU µs/answer", "answers/CPU-s", "answers/s", "p50 ms", "p99 ms", "edgekit is")
    rates = {name: [row[1] / row[0] if row[0] else math.inf for row in rows] for name, rows in figures.items()}
    for name, rows in figures.items():
        cost = median([row[0] * 1e6 / row[1] if row[1] else math.inf for row in rows])
        ratio = median_ratio(rates[OURS], rates[name]) if OURS in rates else None
        per_s, p50, p99 = (median([row[column] for row in rows]) for column in (2, 3, 4))
        result.rows.append(
            [name, cost.text("{:.0f}"), median(rates[name]).text("{:.0f}"), per_s.text("{:.0f}"),
             f"{p50.middle:.2f}", f"{p99.middle:.2f}", ratio.text("{:.2f}") + " times" if ratio else "-"]
        )  # fmt: skip
    for peer, name in [(peer, name) for peer in PEERS for name in rates if name.startswith(peer.name)]:
        for own_name in (OURS, OURS_BINARY):
            if own_name in rates:
                target = Target(f"answers per CPU-second, {own_name}, over {name}", peer.times_edgekit)
                result.evaluate(target, median_ratio(rates[own_name], rates[name]), "{:.2f}")
