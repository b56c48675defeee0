"""One subject from its samples to its result, in a process of its own, and the results that are kept."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.drift.measured import Bench, Result, cpu_s
from benchmarks.drift.plan import Plan
from edgekit.runner.files import write_atomically

KEPT = Path(__file__).parents[2] / "build" / "drift-results"
"""A file for each subject of the last whole run."""


def measured(name: str, plan: Plan, peers: bool) -> Result | None:
    """A subject's result, None where its data are not there. A whole one is kept, as soon as a part of it is ready.

    Without `peers` the monitor alone is measured, and stands beside what was kept of them.
    """
    begun = cpu_s()
    try:
        bench = Bench(import_module(f"benchmarks.drift.subjects.{name}").load(plan.quick), plan)
    except FileNotFoundError as reason:
        print(f"{name} is left out: {reason}", file=sys.stderr)
        return None
    old = None if peers else kept(name)
    bench.monitor()
    result = bench.result if old is None else beside(bench.result, old)
    for stage in (bench.online, bench.offline, bench.slow) if peers else (lambda: None,):
        stage()
        if peers:
            result.cpu_s = cpu_s() - begun
        if not plan.quick:
            KEPT.mkdir(parents=True, exist_ok=True)
            write_atomically(KEPT / f"{name}.pickle", pickle.dumps(result))
    seconds = ", ".join(f"{key} {value:.0f} s" for key, value in bench.result.seconds.items())
    print(f"{name}: {seconds}", file=sys.stderr, flush=True)
    return result


def kept(name: str) -> Result | None:
    """What is kept of a subject; None where nothing is."""
    path = KEPT / f"{name}.pickle"
    return pickle.loads(path.read_bytes()) if path.is_file() else None  # type: ignore[no-any-return]


def beside(new: Result, old: Result) -> Result:
    """The monitor's new result beside the peers' old one of the same streams."""
    if [each["title"] for each in old.drifts] != [each["title"] for each in new.drifts]:
        return new
    sound = {order: {**old.sound.get(order, {}), **new.sound[order]} for order in new.sound}
    return replace(old, outcomes={**old.outcomes, **new.outcomes}, sound=sound, drifts=new.drifts)
