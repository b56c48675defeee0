"""`edgekit fleet doctor`: what would keep a bundle from running on each device, with the line that repairs it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from edgekit.fleet.devices import results
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.results import DeviceFinding
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import RunnerFile, Supplies, supply
from edgekit.fleet.devices.temporary import temporary_bundles
from edgekit.fleet.rollout import outcomes, payload
from edgekit.fleet.rollout.outcomes import Outcome
from edgekit.fleet.rollout.selection import FleetSelection, run_on_each

WOULD_RUN, BLOCKED = "would run", 5
CLOCK_S = 300.0
"""A clock that is further off matters to whoever reads a log, and to signatures that end on a day."""


def run(bundle: Path, chosen: FleetSelection, as_json: bool) -> int:
    """The exit code of the worst device; 5 where it would not run there."""
    runner, sent = RunnerFile.build(), payload.read_payload(bundle)
    supplies, findings = Supplies(runner), dict[str, list[DeviceFinding]]()

    async def examine(line: DeviceSession, found: HelloFacts, before: Outcome) -> Outcome:
        sent.temporary.check(found)
        edgerun, found = await supply(line, found, supplies, None, sent.temporary.size)
        async with temporary_bundles(line, found, [sent.temporary]) as paths:
            words = edgerun.words("doctor", *paths, "--json")
            answer = await line.retry(lambda connection: connection.run(words))
        if answer.code not in (0, BLOCKED):
            answer.check()
        findings[before.host.name] = told = [*_clock(found), *results.parse_findings(answer)]
        blocking = [each for each in told if each.severity == "error"]
        if blocking or answer.code == BLOCKED:
            raise DeviceError(
                "; ".join(f"{each.cause}; {each.fix}" for each in blocking) or "would not run it", BLOCKED
            )
        return before.to(WOULD_RUN, why="; ".join(each.cause for each in told))

    ended = run_on_each(chosen, "fleet doctor", examine, as_json, runner=runner.sha256)
    for outcome in ended:
        if as_json:
            told = [each.record() for each in findings.get(outcome.host.name, [])]
            print(json.dumps({**outcome.record(sent.bundle.sha256), "findings": told}, sort_keys=True))
        elif outcome.exit_code == 0:
            print(outcome.line())
    return outcomes.worst_exit_code(ended)


def _clock(found: HelloFacts) -> list[DeviceFinding]:
    """What is to be said of the device's clock, beside this machine's."""
    if abs(found.ahead_s) <= CLOCK_S:
        return []
    off = timedelta(seconds=round(abs(found.ahead_s)))
    where = "ahead of" if found.ahead_s > 0 else "behind"
    return [
        DeviceFinding(
            "clock",
            "warning",
            f"its clock is {off} {where} this machine's",
            "set it, for example by `timedatectl set-ntp true`: signatures, keys and policies end by it",
        )
    ]
