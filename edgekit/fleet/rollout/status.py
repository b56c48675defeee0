"""`edgekit fleet status`: the current release of each device, and why others failed."""

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

STATES = {"none": "no release", "trial": outcomes.ON_TRIAL, "confirmed": outcomes.CONFIRMED}


MOST_ROWS = 20
"""Of a larger fleet the table has only the devices that need attention."""


def run(chosen: FleetSelection, as_json: bool, everything: bool = False) -> int:
    """Ask each device and print its state; of a large fleet, unless `everything`, only of those that need attention.

    Returns the exit code of the worst device: that of one that is unreachable, or does not answer as it should.
    """
    seen = dict[str, tuple[HelloFacts, ReleaseStatus]]()

    async def look(line: DeviceSession, found: HelloFacts, before: Outcome) -> Outcome:
        status = await release_status(line, found)
        seen[before.host.name] = found, status
        if status.refused:
            return before.to(REFUSED, release=status.current, why=status.refused, exit_code=REFUSED_CODE)
        return before.to(STATES[status.state], release=status.current)

    ended = run_on_each(chosen, "fleet status", look, as_json, lines=False)
    if as_json:
        for outcome in ended:
            print(json.dumps(_record(outcome, seen.get(outcome.host.name)), sort_keys=True))
        return outcomes.worst_exit_code(ended)
    rows = [_row(outcome, seen.get(outcome.host.name)) for outcome in ended]
    shown = rows if everything or len(rows) <= MOST_ROWS else [row for row in rows if _needs_attention(row)]
    if shown:
        table.print_table(("host", "class", "state", "release", "bundle", "signed", "why"), shown)
    print(_summary(rows, len(rows) - len(shown)))
    return outcomes.worst_exit_code(ended)


def _needs_attention(row: tuple[str, ...]) -> bool:
    """Whether a device has another state than confirmed, or a release that failed there."""
    return row[2] != outcomes.CONFIRMED or bool(row[-1])


def _summary(rows: Sequence[tuple[str, ...]], hidden: int) -> str:
    """`50 devices: 48 confirmed · 2 unreachable`, and how many of them the table leaves out."""
    states = Counter(row[2] for row in rows)
    counts = " · ".join(f"{number} {state}" for state, number in states.most_common())
    more = f"; {hidden} confirmed ones are not shown, --all shows them" if hidden else ""
    return f"{len(rows)} {'device' if len(rows) == 1 else 'devices'}: {counts}{more}"


def _record(outcome: Outcome, seen: tuple[HelloFacts, ReleaseStatus] | None) -> dict[str, Any]:
    facts, status = seen or (None, ReleaseStatus())
    now = status.release(status.current)
    more = (
        {"python": facts.dotted, "machine": facts.machine, "home": facts.home, "signed": status.signed} if facts else {}
    )
    failed = {str(each.number): each.why for each in status.releases if each.why}
    return {
        **outcome.record(now.sha256 if now else ""),
        **more,
        "name": now.name if now else "",
        "version": now.version if now else "",
        "failed": failed,
    }


def _row(outcome: Outcome, seen: tuple[HelloFacts, ReleaseStatus] | None) -> tuple[str, ...]:
    status = seen[1] if seen else ReleaseStatus()
    now = status.release(status.current)
    failed = [f"release {each.number} failed: {each.why}" for each in status.releases[-1:] if each.why]
    return (
        outcome.host.name,
        outcome.host.device_class,
        outcome.state,
        str(status.current or ""),
        f"{now.name} {now.version}".strip() if now else "",
        "yes" if status.signed else "",
        outcome.why or "; ".join(failed),
    )
