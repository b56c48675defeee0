"""`edgekit fleet status`: the current release of each device, and why its newest release failed, if it did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from edgekit.fleet.devices.commands import release_status
from edgekit.fleet.devices.facts import HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.rollout import outcomes, table
from edgekit.fleet.rollout.outcomes import REFUSED, REFUSED_CODE, Outcome
from edgekit.fleet.rollout.selection import FleetSelection, run_on_each

STATES = {"none": "no release", "trial": outcomes.ON_PROBATION, "confirmed": outcomes.CONFIRMED}


MOST_ROWS = 20
"""For a larger fleet, the table has only the devices that need attention."""


def run(selection: FleetSelection, as_json: bool, everything: bool = False) -> int:
    """Query each device and print its state. Of a large fleet, only devices that need attention are shown.

    With `everything`, all devices are shown. Returns the exit code of the worst device, which is 0 unless a device is
    unreachable, gives an unexpected answer, or refuses to load its current release.
    """
    answers = dict[str, tuple[HelloFacts, ReleaseStatus]]()

    async def query(session: DeviceSession, hello: HelloFacts, before: Outcome) -> Outcome:
        status = await release_status(session, hello)
        answers[before.host.name] = hello, status
        if status.refused:
            return before.to(REFUSED, release=status.current, why=status.refused, exit_code=REFUSED_CODE)
        return before.to(STATES[status.state], release=status.current)

    results = run_on_each(selection, "fleet status", query, as_json, lines=False)
    if as_json:
        for outcome in results:
            print(json.dumps(_record(outcome, answers.get(outcome.host.name)), sort_keys=True))
        return outcomes.worst_exit_code(results)
    rows = [_row(outcome, answers.get(outcome.host.name)) for outcome in results]
    visible_rows = rows if everything or len(rows) <= MOST_ROWS else [row for row in rows if _needs_attention(row)]
    if visible_rows:
        table.print_table(("host", "class", "state", "release", "bundle", "signed", "why"), visible_rows)
    print(_summary(rows, len(rows) - len(visible_rows)))
    return outcomes.worst_exit_code(results)


def _needs_attention(row: tuple[str, ...]) -> bool:
    """Return whether a device is in another state than confirmed, or a release failed there."""
    return row[2] != outcomes.CONFIRMED or bool(row[-1])


def _summary(rows: Sequence[tuple[str, ...]], hidden: int) -> str:
    """Return `50 devices: 48 confirmed · 2 unreachable`, and how many of them the table leaves out."""
    states = Counter(row[2] for row in rows)
    counts = " · ".join(f"{number} {state}" for state, number in states.most_common())
    suffix = f"; {hidden} confirmed devices are not shown; --all shows them" if hidden else ""
    return f"{len(rows)} {'device' if len(rows) == 1 else 'devices'}: {counts}{suffix}"


def _record(outcome: Outcome, answer: tuple[HelloFacts, ReleaseStatus] | None) -> dict[str, Any]:
    facts, status = answer or (None, ReleaseStatus())
    current = status.release(status.current)
    extra = (
        {"python": facts.dotted, "machine": facts.machine, "home": facts.home, "signed": status.signed} if facts else {}
    )
    failed = {str(each.number): each.why for each in status.releases if each.why}
    return {
        **outcome.record(current.sha256 if current else ""),
        **extra,
        "name": current.name if current else "",
        "version": current.version if current else "",
        "failed": failed,
    }


def _row(outcome: Outcome, answer: tuple[HelloFacts, ReleaseStatus] | None) -> tuple[str, ...]:
    status = answer[1] if answer else ReleaseStatus()
    current = status.release(status.current)
    failed = [f"release {each.number} failed: {each.why}" for each in status.releases[-1:] if each.why]
    return (
        outcome.host.name,
        outcome.host.device_class,
        outcome.state,
        str(status.current or ""),
        f"{current.name} {current.version}".strip() if current else "",
        "yes" if status.signed else "",
        outcome.why or "; ".join(failed),
    )
