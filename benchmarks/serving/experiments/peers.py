"""Answers per second of CPU on the digits' winner, against other servers. The others are stopped meanwhile."""

from __future__ import annotations

import math
from contextlib import ExitStack

from benchmarks.harness import Finding, NotRun, Target, median, quotient, turns
from benchmarks.serving import ours
from benchmarks.serving.load import Wrk
from benchmarks.serving.machine import Server, cpu_s
from benchmarks.serving.peers import PEERS, SETUPS, Subject
from benchmarks.serving.subjects import Plan, sample_of

TITLE = "answers per CPU-second, digits' winner, one raw sample a request, wrk with 8 connections"
OURS = "edgekit, raw body"
OURS_BINARY = "edgekit, binary tensor"
SECONDS, WARM_S = 2.0, 0.5
MODEL = "digits"


def measure(plan: Plan) -> Finding:
    """Interleaved rounds of all servers that could be started."""
    finding = Finding("peers", TITLE)
    with ExitStack() as stack:
        server = stack.enter_context(ours.server("ours", [plan.bundles]))
        subject = subject_of(plan, server)
        kind = ours.ask(server.address, f"/v2/models/{MODEL}")["inputs"][0]["name"]
        running = {
            OURS: (server, Wrk("ours", server.address, ours.raw(MODEL, subject.sample))),
            OURS_BINARY: (server, Wrk("ours-binary", server.address, ours.binary(MODEL, subject.sample, kind))),
        }
        finding.notes.append(
            f"the winner here is {subject.bundle.name} on {subject.interpreter}; {subject.sample.nbytes} bytes a sample"
        )
        finding.notes += ours.proofs(server)
        for peer, setup in [(peer, setup) for peer in PEERS for setup in SETUPS]:
            name = f"{peer.name}, {setup}"
            try:
                other = stack.enter_context(peer.start(subject, setup))
                wrk = Wrk(other.name, other.address, peer.post(subject, setup))
                wrk.run(WARM_S)
                other.pause()
                running[name] = other, wrk
            except NotRun as reason:
                finding.missing.append(f"{name}: {reason}")
        server.pause()
        finding.rounds = rounds(plan, running, finding)
    tell(finding)
    return finding


def subject_of(plan: Plan, server: Server) -> Subject:
    """The bundle that the bare name means, which is the fastest here."""
    facts = ours.ask(server.address, f"/v2/models/{MODEL}")
    target = facts["platform"].removeprefix("edgekit_")
    path = plan.digits(target)
    return Subject(path, target, ours.interpreter(server.address, MODEL), sample_of(path))


def rounds(plan: Plan, running: dict[str, tuple[Server, Wrk]], finding: Finding) -> dict[str, list[list[float]]]:
    """Each round's (CPU seconds, answers, answers a second, p50 ms, p99 ms)."""
    found: dict[str, list[list[float]]] = {name: [] for name in running}
    for order in turns(list(running), plan.rounds):
        for name in order:
            if name not in found:
                continue
            server, wrk = running[name]
            server.resume()
            try:
                wrk.run(WARM_S)
                before = cpu_s(server.pid)
                load = wrk.run(SECONDS * plan.scale)
                spent = cpu_s(server.pid) - before
                found[name].append([spent, load.answered, load.per_s, load.p50_ms, load.p99_ms])
            except NotRun as reason:  # its other rounds would have no partners to be compared with
                finding.missing.append(f"{name}: after {len(found.pop(name))} rounds: {reason}")
            finally:
                server.pause()
    return found


def tell(finding: Finding) -> None:
    """Fill in the table and the verdicts."""
    found = {name: rows for name, rows in finding.rounds.items() if rows}
    finding.header = ("server", "CPU µs/answer", "answers/CPU-s", "answers/s", "p50 ms", "p99 ms", "edgekit is")
    rates = {name: [each[1] / each[0] if each[0] else math.inf for each in rows] for name, rows in found.items()}
    for name, rows in found.items():
        cost = median([each[0] * 1e6 / each[1] if each[1] else math.inf for each in rows])
        times = quotient(rates[OURS], rates[name]) if OURS in rates else None
        per_s, p50, p99 = (median([each[place] for each in rows]) for place in (2, 3, 4))
        finding.rows.append(
            [name, cost.text("{:.0f}"), median(rates[name]).text("{:.0f}"), per_s.text("{:.0f}"),
             f"{p50.middle:.2f}", f"{p99.middle:.2f}", times.text("{:.2f}") + " times" if times else "-"]
        )  # fmt: skip
    for peer, name in [(peer, name) for peer in PEERS for name in rates if name.startswith(peer.name)]:
        for mine in (OURS, OURS_BINARY):
            if mine in rates:
                target = Target(f"answers per CPU-second, {mine}, over {name}", peer.times_edgekit)
                finding.evaluate(target, quotient(rates[mine], rates[name]), "{:.2f}")
