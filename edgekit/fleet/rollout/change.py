"""`edgekit fleet confirm` and `edgekit fleet rollback`: confirm or roll back a bundle wherever it is current."""

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


def confirm(bundle: Path, selection: FleetSelection, as_json: bool) -> int:
    """Confirm the bundle, and return the exit code of the worst device."""

    async def keep(edgerun: Edgerun, number: int, status: ReleaseStatus) -> ReleaseStatus:
        return status if status.state == "confirmed" else await edgerun.confirm(number)

    return _change(bundle, selection, "confirm", keep, CONFIRMED, as_json)


def roll_back(bundle: Path, selection: FleetSelection, why: str, as_json: bool) -> int:
    """Roll the bundle back, and return the exit code of the worst device."""

    async def leave(edgerun: Edgerun, number: int, status: ReleaseStatus) -> ReleaseStatus:
        return await edgerun.roll_back(number, why)

    return _change(bundle, selection, "rollback", leave, TAKEN_BACK, as_json)


def _change(bundle: Path, selection: FleetSelection, name: str, step: Step, state: str, as_json: bool) -> int:
    """Run a step on each device where the bundle is current; other devices are left unchanged.

    Returns 4 if the bundle is current on no device.
    """
    content = payload.read_payload(bundle)
    sha256 = content.bundle.sha256

    async def work(session: DeviceSession, hello: HelloFacts, before: Outcome) -> Outcome:
        status = await release_status(session, hello)
        if status.current is None or not status.is_current(sha256):
            current = status.release(status.current)
            subject = f"release {current.number} ({current.name} {current.version}) is" if current else "no release is"
            if not hello.edgerun:
                return before.to(NOT_CURRENT, why="nothing was ever installed there")
            return before.to(NOT_CURRENT, why=f"{subject} current there, so nothing was changed")
        after = await step(Edgerun(session, hello, hello.edgerun), status.current, status)
        if after.refused:
            raise DeviceError(after.refused, REFUSED_CODE)
        return before.to(state, release=after.current)

    with journal.open_journal(selection.inventory, f"edgekit fleet {name} {bundle.name}") as record:
        results = run_on_each(selection, f"fleet {name}", work, as_json)
        for outcome in results:
            if outcome.state == CONFIRMED:
                record.note(outcome, content.key)
            elif outcome.state == TAKEN_BACK:
                record.forget(outcome.host)
    done = sum(outcome.state == state for outcome in results)
    live_display.print_outcomes(results, sha256, as_json, f"{state} {done}/{len(results)}")
    return outcomes.worst_exit_code(results) or (0 if done else NOWHERE)
