"""One subject from its samples to its result, in a process of its own."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module

from benchmarks.drift.measured import Bench, Result, cpu_s
from benchmarks.drift.plan import Plan


def measured(name: str, plan: Plan, peers: bool) -> tuple[Result | None, float]:
    """A subject's result, None where its data are not there, and the processor time that it took."""
    begun = cpu_s()
    try:
        bench = Bench(import_module(f"benchmarks.drift.subjects.{name}").load(plan.quick), plan)
    except FileNotFoundError as reason:
        print(f"{name} is left out: {reason}", file=sys.stderr)
        return None, 0.0
    bench.monitor()
    if peers:
        bench.peers()
    seconds = ", ".join(f"{key} {value:.0f} s" for key, value in bench.result.seconds.items())
    print(f"{name}: {seconds}", file=sys.stderr)
    return bench.result, cpu_s() - begun


def beside(new: Result, old: list[Result]) -> Result:
    """The monitor's new result beside the peers' old one of the same streams."""
    known = next((each for each in old if each.subject["name"] == new.subject["name"]), None)
    if known is None or [each["title"] for each in known.drifts] != [each["title"] for each in new.drifts]:
        return new
    sound = {order: {**known.sound.get(order, {}), **new.sound[order]} for order in new.sound}
    return replace(known, outcomes={**known.outcomes, **new.outcomes}, sound=sound, drifts=new.drifts)
