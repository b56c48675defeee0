"""`edgekit fleet bench`: a bundle timed on each device, by the device's own clock. Nothing is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.fleet.devices import results
from edgekit.fleet.devices.facts import Facts
from edgekit.fleet.devices.line import Line
from edgekit.fleet.devices.supply import Runner, Supplies, supply
from edgekit.fleet.devices.temporary import temporary_bundles
from edgekit.fleet.rollout import outcomes, parcel, table
from edgekit.fleet.rollout.fleet import Chosen, ask
from edgekit.fleet.rollout.outcomes import Outcome

BENCH_S = 1800.0
TIMED = "timed"
FIGURES = ("p50_ms", "p95_ms", "p99_ms")


def run(bundle: Path, chosen: Chosen, calls: int, wheels: Path | None, as_json: bool) -> int:
    """The exit code of the worst device."""
    runner, sent = Runner.build(), parcel.read(bundle)
    supplies, figures = Supplies(runner, wheels), dict[str, results.Timed]()

    async def time(line: Line, found: Facts, before: Outcome) -> Outcome:
        sent.temporary.check(found)
        edgerun, found = await supply(line, found, supplies, sent.target, sent.temporary.size)
        async with temporary_bundles(line, found, [sent.temporary]) as paths:
            answer = await edgerun.bench(*paths, "--calls", str(calls), "--json", within_s=BENCH_S)
        figures[before.host.name] = results.timed(answer)
        return before.to(TIMED)

    ended = ask(chosen, "fleet bench", time, as_json, lines=False, runner=runner.sha256)
    if as_json:
        for outcome in ended:
            print(json.dumps(_record(outcome, sent.bundle.sha256, figures.get(outcome.host.name)), sort_keys=True))
    else:
        table.show(
            ("host", "class", "interpreter", *FIGURES, "why"),
            [_row(outcome, figures.get(outcome.host.name)) for outcome in ended],
        )
    return outcomes.worst(ended)


def _record(outcome: Outcome, sha256: str, found: results.Timed | None) -> dict[str, Any]:
    if found is None:
        return outcome.record(sha256)
    measured = {"interpreter": found.interpreter, "comparable": found.comparable, "disturbed": list(found.why)}
    return {**outcome.record(sha256), **measured, **found.figures}


def _row(outcome: Outcome, found: results.Timed | None) -> tuple[str, ...]:
    names = (outcome.host.name, outcome.host.device_class)
    if found is None:
        return *names, "", *("" for _ in FIGURES), f"{outcome.state}: {outcome.why}"
    return *names, found.interpreter, *(f"{found.figures[name]:.4f}" for name in FIGURES), "; ".join(found.why)
