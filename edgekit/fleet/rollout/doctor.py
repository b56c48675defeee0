"""`edgekit fleet doctor`: report what would keep a bundle from running on each device, and the fix."""

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
"""A larger clock error matters for logs, and for signatures that expire."""


def run(bundle: Path, selection: FleetSelection, as_json: bool) -> int:
    """Examine the devices, print findings, and return the worst device's exit code: 5 if the bundle would not run."""
    runner, content = RunnerFile.build(), payload.read_payload(bundle)
    supplies, findings = Supplies(runner), dict[str, list[DeviceFinding]]()

    async def examine(session: DeviceSession, hello: HelloFacts, before: Outcome) -> Outcome:
        content.temporary.check(hello)
        edgerun, hello = await supply(session, hello, supplies, None, content.temporary.size)
        async with temporary_bundles(session, hello, [content.temporary]) as paths:
            words = edgerun.words("doctor", *paths, "--json")
            answer = await session.retry(lambda connection: connection.run(words))
        if answer.code not in (0, BLOCKED):
            answer.check()
        findings[before.host.name] = device_findings = [*_clock(hello), *results.parse_findings(answer)]
        blocking = [each for each in device_findings if each.severity == "error"]
        if blocking or answer.code == BLOCKED:
            raise DeviceError(
                "; ".join(f"{each.cause}; {each.fix}" for each in blocking) or "would not run the bundle", BLOCKED
            )
        return before.to(WOULD_RUN, why="; ".join(each.cause for each in device_findings))

    results_by_host = run_on_each(selection, "fleet doctor", examine, as_json, runner=runner.sha256)
    for outcome in results_by_host:
        if as_json:
            device_findings = [each.record() for each in findings.get(outcome.host.name, [])]
            print(json.dumps({**outcome.record(content.bundle.sha256), "findings": device_findings}, sort_keys=True))
        elif outcome.exit_code == 0:
            print(outcome.line())
    return outcomes.worst_exit_code(results_by_host)


def _clock(hello: HelloFacts) -> list[DeviceFinding]:
    """Return a finding if the device's clock differs from this machine's."""
    if abs(hello.ahead_s) <= CLOCK_S:
        return []
    difference = timedelta(seconds=round(abs(hello.ahead_s)))
    direction = "ahead of" if hello.ahead_s > 0 else "behind"
    return [
        DeviceFinding(
            "clock",
            "warning",
            f"its clock is {difference} {direction} this machine's",
            "set it, for example by `timedatectl set-ntp true`: the expiry of signatures, keys and "
            "policies depends on it",
        )
    ]
