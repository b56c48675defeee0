"""`edgekit fleet bench`: time a bundle on each device, with the device's own clock. Nothing is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.fleet.devices import results
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import RunnerFile, Supplies, supply
from edgekit.fleet.devices.temporary import temporary_bundles
from edgekit.fleet.rollout import outcomes, payload, table
from edgekit.fleet.rollout.outcomes import Outcome
from edgekit.fleet.rollout.selection import FleetSelection, run_on_each

BENCH_S = 1800.0
TIMED = "timed"
FIGURES = ("p50_ms", "p95_ms", "p99_ms")


def run(bundle: Path, selection: FleetSelection, calls: int, wheels: Path | None, as_json: bool) -> int:
    """Time the bundle, print the results, and return the exit code of the worst device."""
    runner, content = RunnerFile.build(), payload.read_payload(bundle)
    supplies, figures = Supplies(runner, wheels), dict[str, results.DeviceTiming]()

    async def time(session: DeviceSession, hello: HelloFacts, before: Outcome) -> Outcome:
        content.temporary.check(hello)
        edgerun, hello = await supply(session, hello, supplies, content.target, content.temporary.size)
        async with temporary_bundles(session, hello, [content.temporary]) as paths:
            answer = await edgerun.bench(*paths, "--calls", str(calls), "--json", within_s=BENCH_S)
        figures[before.host.name] = results.parse_timing(answer)
        return before.to(TIMED)

    results_by_host = run_on_each(selection, "fleet bench", time, as_json, lines=False, runner=runner.sha256)
    if as_json:
        for outcome in results_by_host:
            print(json.dumps(_record(outcome, content.bundle.sha256, figures.get(outcome.host.name)), sort_keys=True))
    else:
        table.print_table(
            ("host", "class", "interpreter", *FIGURES, "why"),
            [_row(outcome, figures.get(outcome.host.name)) for outcome in results_by_host],
        )
    return outcomes.worst_exit_code(results_by_host)


def _record(outcome: Outcome, sha256: str, timing: results.DeviceTiming | None) -> dict[str, Any]:
    if timing is None:
        return outcome.record(sha256)
    measured = {"interpreter": timing.interpreter, "comparable": timing.comparable, "disturbed": list(timing.why)}
    return {**outcome.record(sha256), **measured, **timing.figures}


def _row(outcome: Outcome, timing: results.DeviceTiming | None) -> tuple[str, ...]:
    names = (outcome.host.name, outcome.host.device_class)
    if timing is None:
        return *names, "", *("" for _ in FIGURES), f"{outcome.state}: {outcome.why}"
    return *names, timing.interpreter, *(f"{timing.figures[name]:.4f}" for name in FIGURES), "; ".join(timing.why)
