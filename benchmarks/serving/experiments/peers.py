"""Answers per second of CPU on the digits' winner, against other servers. The others are stopped meanwhile."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.environments import NotRun
from benchmarks.serving import figures, ours
from benchmarks.serving.figures import Target
from benchmarks.serving.machine import Server, cpu_s
from benchmarks.serving.peers import Subject, litserve, mlserver, triton
from benchmarks.serving.plan import Plan, sample_of
from benchmarks.serving.report import Finding
from benchmarks.serving.wrk import Post, Wrk

TITLE = "answers per CPU-second, digits' winner, one raw sample a request, wrk with 8 connections"
OURS = "edgekit, raw body"
OURS_BINARY = "edgekit, binary tensor"
TARGETS = {litserve.NAME: 10.0, mlserver.NAME: 10.0, triton.NAME: 2.0}
SECONDS, WARM_S = 2.0, 0.5
MODEL = "digits"


def measure(plan: Plan) -> Finding:
    """Interleaved rounds of all that could be started."""
    finding = Finding("peers", TITLE)
    with ExitStack() as stack:
        server = stack.enter_context(ours.server("ours", [plan.bundles]))
        subject = subject_of(plan, server)
        kind = ours.ask(server.address, f"/v2/models/{MODEL}")["inputs"][0]["name"]
        running = {
            OURS: loaded(server, "ours", ours.raw(MODEL, subject.sample)),
            OURS_BINARY: loaded(server, "ours-binary", ours.binary(MODEL, subject.sample, kind)),
        }
        finding.notes.append(
            f"the winner here is {subject.bundle.name} on {subject.interpreter}; {subject.sample.nbytes} bytes a sample"
        )
        finding.notes += ours.proofs(server)
        for peer, way in [(each, way) for each in (litserve, mlserver, triton) for way in each.WAYS]:
            name = f"{peer.NAME}, {way}"
            try:
                other = stack.enter_context(peer.server(subject, way))
                running[name] = loaded(other, other.name, peer.post(subject, way))
                running[name][1].run(WARM_S)
                other.pause()
            except NotRun as reason:
                finding.missing.append(f"{name}: {reason}")
                running.pop(name, None)
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


def loaded(server: Server, name: str, post: Post) -> tuple[Server, Wrk]:
    """A server and the load for it."""
    return server, Wrk(name, server.address, post)


def rounds(plan: Plan, running: dict[str, tuple[Server, Wrk]], finding: Finding) -> dict[str, list[list[float]]]:
    """Each round's (CPU seconds, answers, answers a second, p50 ms, p99 ms)."""
    found: dict[str, list[list[float]]] = {name: [] for name in running}
    for order in plan.turns(list(running)):
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
    """The table and the verdicts."""
    found = finding.rounds
    finding.table.append(["server", "CPU us/answer", "answers/CPU-s", "answers/s", "p50 ms", "p99 ms", "edgekit is"])
    rates = {name: [figures.per_cpu_s(each[0], int(each[1])) for each in rows] for name, rows in found.items() if rows}
    for name, rows in ((name, rows) for name, rows in found.items() if rows):
        cost = figures.of([figures.cpu_us(each[0], int(each[1])) for each in rows])
        times = figures.quotient(rates[OURS], rates[name]) if OURS in rates else None
        per_s, p50, p99 = (figures.of([each[place] for each in rows]) for place in (2, 3, 4))
        finding.table.append(
            [name, cost.text("{:.0f}"), figures.of(rates[name]).text("{:.0f}"), per_s.text("{:.0f}"),
             f"{p50.middle:.2f}", f"{p99.middle:.2f}", times.text("{:.2f}") + " times" if times else "-"]
        )  # fmt: skip
    for name, bound in ((name, TARGETS[peer]) for peer in TARGETS for name in rates if name.startswith(peer)):
        for mine in (OURS, OURS_BINARY):
            if mine in rates:
                target = Target(f"answers per CPU-second, {mine}, over {name}", bound)
                finding.evaluate(target, figures.quotient(rates[mine], rates[name]), "{:.2f}")
