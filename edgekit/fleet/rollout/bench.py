"""`edgekit fleet bench`: a bundle timed on each device, by the device's own clock. Nothing is installed."""

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


def run(bundle: Path, chosen: FleetSelection, calls: int, wheels: Path | None, as_json: bool) -> int:
    """The exit code of the worst device."""
    runner, sent = RunnerFile.build(), payload.read_payload(bundle)
    supplies, figures = Supplies(runner, wheels), dict[str, results.DeviceTiming]()

    async def time(line: DeviceSession, found: HelloFacts, before: Outcome) -> Outcome:
        sent.temporary.check(found)
        edgerun, found = await supply(line, found, supplies, sent.target, sent.temporary.size)
        async with temporary_bundles(line, found, [sent.temporary]) as paths:
            answer = await edgerun.bench(*paths, "--calls", str(calls), "--json", within_s=BENCH_S)
        figures[before.host.name] = results.parse_timing(answer)
        return before.to(TIMED)

    ended = run_on_each(chosen, "fleet bench", time, as_json, lines=False, runner=runner.sha256)
    if as_json:
        for outcome in ended:
            print(json.dumps(_record(outcome, sent.bundle.sha256, figures.get(outcome.host.name)), sort_keys=True))
    else:
        table.print_table(
            ("host", "class", "interpreter", *FIGURES, "why"),
            [_row(outcome, figures.get(outcome.host.name)) for outcome in ended],
        )
    return outcomes.worst_exit_code(ended)


def _record(outcome: Outcome, sha256: str, found: results.DeviceTiming | None) -> dict[str, Any]:
    if found is None:
        return outcome.record(sha256)
    measured = {"interpreter": found.interpreter, "comparable": found.comparable, "disturbed": list(found.why)}
    return {**outcome.record(sha256), **measured, **found.figures}


def _row(outcome: Outcome, found: results.DeviceTiming | None) -> tuple[str, ...]:
    names = (outcome.host.name, outcome.host.device_class)
    if found is None:
        return *names, "", *("" for _ in FIGURES), f"{outcome.state}: {outcome.why}"
    return *names, found.interpreter, *(f"{found.figures[name]:.4f}" for name in FIGURES), "; ".join(found.why)
