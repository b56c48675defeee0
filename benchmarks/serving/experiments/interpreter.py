"""How much of the bare interpreter's rate comes through the socket, on MLPerf Tiny's int8 ResNet-8."""

from __future__ import annotations

from benchmarks.serving import figures, ours
from benchmarks.serving.bare import Bare
from benchmarks.serving.figures import Target
from benchmarks.serving.machine import cpu_s
from benchmarks.serving.plan import Plan, resnet8, sample_of
from benchmarks.serving.report import Finding
from benchmarks.serving.wrk import Wrk

TITLE = "the bare interpreter's rate through the socket, MLPerf Tiny's int8 ResNet-8, wrk with 8 connections"
MODEL = "resnet8"
SERVED, KINDS = "served, raw body", ("predict", "execute")
SECONDS, WARM_S = 2.0, 0.3


def measure(plan: Plan) -> Finding:
    """The server and the bare loops take turns on one core."""
    finding = Finding("interpreter", TITLE)
    path = resnet8()
    found: dict[str, list[float]] = {name: [] for name in (SERVED, *KINDS)}
    costs: dict[str, list[float]] = {name: [] for name in found}
    with ours.server("resnet8", [path]) as server:
        [proven] = ours.proofs(server)
        chosen = ours.interpreter(server.address, MODEL)
        wrk = Wrk("resnet8", server.address, ours.raw(MODEL, sample_of(path)))
        with Bare(path, chosen) as bare:
            for order in plan.turns(list(found)):
                for name in order:
                    pid = server.pid if name == SERVED else bare.pid
                    for seconds in (WARM_S * plan.scale, SECONDS * plan.scale):
                        before = cpu_s(pid)
                        rate = wrk.run(seconds).per_s if name == SERVED else bare.per_s(name, seconds)
                        spent = cpu_s(pid) - before
                    found[name].append(rate)
                    costs[name].append(figures.cpu_us(spent, round(rate * seconds)))
    finding.rounds = {"a_second": found, "cpu_us": costs}
    finding.table.append(["", "a second", "served is", "CPU us each"])
    names = {"predict": "bare loop of Model.predict", "execute": "bare loop of set, invoke, get"}
    for name, rates in found.items():
        share = figures.quotient(found[SERVED], rates).text("{:.1%}")
        finding.table.append(
            [names.get(name, name), figures.of(rates).text("{:.0f}"), share, figures.of(costs[name]).text("{:.0f}")]
        )
    for name in KINDS:
        target = Target(f"served over the {names[name]}", 0.75)
        finding.evaluate(target, figures.quotient(found[SERVED], found[name]), "{:.3f}")
    finding.notes.append(f"both on {chosen}, one thread, one core; {proven}")
    return finding
