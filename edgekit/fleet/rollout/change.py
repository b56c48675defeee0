"""`edgekit fleet confirm` and `edgekit fleet rollback`: of one bundle, on the devices where that is current."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from edgekit.fleet.devices.commands import Edgerun, release_status
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.rollout import journal, live_display, outcomes, payload
from edgekit.fleet.rollout.outcomes import CONFIRMED, REFUSED_CODE, Outcome
from edgekit.fleet.rollout.selection import FleetSelection, run_on_each

TAKEN_BACK, NOT_CURRENT, NOWHERE = "taken back", "not current", 4
Step = Callable[[Edgerun, int, ReleaseStatus], Awaitable[ReleaseStatus]]


def confirm(bundle: Path, chosen: FleetSelection, as_json: bool) -> int:
    """The exit code of the worst device."""

    async def keep(edgerun: Edgerun, number: int, status: ReleaseStatus) -> ReleaseStatus:
        return status if status.state == "confirmed" else await edgerun.confirm(number)

    return _change(bundle, chosen, "confirm", keep, CONFIRMED, as_json)


def roll_back(bundle: Path, chosen: FleetSelection, why: str, as_json: bool) -> int:
    """The exit code of the worst device."""

    async def leave(edgerun: Edgerun, number: int, status: ReleaseStatus) -> ReleaseStatus:
        return await edgerun.roll_back(number, why)

    return _change(bundle, chosen, "rollback", leave, TAKEN_BACK, as_json)


def _change(bundle: Path, chosen: FleetSelection, name: str, step: Step, state: str, as_json: bool) -> int:
    """A step on each device where the bundle is current; others are left as they are. 4 where it is current nowhere."""
    sent = payload.read_payload(bundle)
    sha256 = sent.bundle.sha256

    async def work(line: DeviceSession, found: HelloFacts, before: Outcome) -> Outcome:
        status = await release_status(line, found)
        if status.current is None or not status.is_current(sha256):
            now = status.release(status.current)
            what = f"release {now.number} ({now.name} {now.version}) is" if now else "no release is"
            if not found.edgerun:
                return before.to(NOT_CURRENT, why="nothing was ever brought there")
            return before.to(NOT_CURRENT, why=f"{what} current there, so nothing was changed")
        after = await step(Edgerun(line, found, found.edgerun), status.current, status)
        if after.refused:
            raise DeviceError(after.refused, REFUSED_CODE)
        return before.to(state, release=after.current)

    with journal.open_journal(chosen.inventory, f"edgekit fleet {name} {bundle.name}") as notes:
        ended = run_on_each(chosen, f"fleet {name}", work, as_json)
        for outcome in ended:
            if outcome.state == CONFIRMED:
                notes.note(outcome, sent.key)
            elif outcome.state == TAKEN_BACK:
                notes.forget(outcome.host)
    done = sum(outcome.state == state for outcome in ended)
    live_display.print_outcomes(ended, sha256, as_json, f"{state} {done}/{len(ended)}")
    return outcomes.worst_exit_code(ended) or (0 if done else NOWHERE)
