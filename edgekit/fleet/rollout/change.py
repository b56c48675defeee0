"""`edgekit fleet confirm` and `edgekit fleet rollback`: of one bundle, on the devices where that is current."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from edgekit.fleet.devices.commands import Edgerun, status_there
from edgekit.fleet.devices.facts import Facts, Status
from edgekit.fleet.devices.failures import DeviceError
from edgekit.fleet.devices.line import Line
from edgekit.fleet.rollout import journal, live, outcomes, parcel
from edgekit.fleet.rollout.fleet import Chosen, ask
from edgekit.fleet.rollout.outcomes import CONFIRMED, REFUSED_CODE, Outcome

TAKEN_BACK, NOT_CURRENT, NOWHERE = "taken back", "not current", 4
Step = Callable[[Edgerun, int, Status], Awaitable[Status]]


def confirm(bundle: Path, chosen: Chosen, as_json: bool) -> int:
    """The exit code of the worst device."""

    async def keep(edgerun: Edgerun, number: int, status: Status) -> Status:
        return status if status.state == "confirmed" else await edgerun.confirm(number)

    return _change(bundle, chosen, "confirm", keep, CONFIRMED, as_json)


def roll_back(bundle: Path, chosen: Chosen, why: str, as_json: bool) -> int:
    """The exit code of the worst device."""

    async def leave(edgerun: Edgerun, number: int, status: Status) -> Status:
        return await edgerun.roll_back(number, why)

    return _change(bundle, chosen, "rollback", leave, TAKEN_BACK, as_json)


def _change(bundle: Path, chosen: Chosen, name: str, step: Step, state: str, as_json: bool) -> int:
    """A step on each device where the bundle is current; others are left as they are. 4 where it is current nowhere."""
    sent = parcel.read(bundle)
    sha256 = sent.bundle.sha256

    async def work(line: Line, found: Facts, before: Outcome) -> Outcome:
        status = await status_there(line, found)
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

    with journal.opened(chosen.inventory, f"edgekit fleet {name} {bundle.name}") as notes:
        ended = ask(chosen, f"fleet {name}", work, as_json)
        for outcome in ended:
            if outcome.state == CONFIRMED:
                notes.note(outcome, sent.key)
            elif outcome.state == TAKEN_BACK:
                notes.forget(outcome.host)
    done = sum(outcome.state == state for outcome in ended)
    live.print_outcomes(ended, sha256, as_json, f"{state} {done}/{len(ended)}")
    return outcomes.worst(ended) or (0 if done else NOWHERE)
