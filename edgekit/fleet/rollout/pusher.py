"""What a push does on one device: send, which changes nothing there, and install, until it has confirmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgekit.fleet.devices.commands import Edgerun, say_hello
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.device_errors import DeviceError, Unreachable
from edgekit.fleet.devices.facts import HelloFacts, ReleaseStatus
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import Supplies, supply
from edgekit.fleet.rollout.outcomes import CONFIRMED, INSTALLING, ON_TRIAL, REFUSED_CODE, SENDING, SENT, Outcome
from edgekit.fleet.rollout.payload import Payload

FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 5.0
"""Between two questions whether the device has confirmed."""
TAKEN_BACK, NOT_YET = 5, 7


@dataclass(frozen=True)
class PushOptions:
    """`wait_s`: for the device's own confirmation, 0: not at all; `confirm`: do that from here; `proof` for install."""

    wait_s: float = 180.0
    confirm: bool = False
    proof: tuple[str, ...] = ()


class Pusher:
    """`send`, then `install`. Each takes an outcome and gives the next; `say` is told of those between."""

    def __init__(
        self,
        network: Network,
        supplies: Supplies,
        parcel: Payload,
        options: PushOptions,
        say: Callable[[Outcome], object],
    ) -> None:
        self._network, self._supplies, self._parcel, self._options = network, supplies, parcel, options
        self._say = say
        self._facts: dict[str, HelloFacts] = {}

    async def send(self, before: Outcome) -> Outcome:
        """Whatever is missing on the device, and the parcel; nothing that is there."""
        self._say(before.to(SENDING))
        async with DeviceSession(self._network, before.host) as line:
            found = await say_hello(line, self._supplies.runner.sha256)
            done = self._already(before, found.status)
            if done is None:
                room = sum(len(file.data) for file in self._parcel.files)
                edgerun, found = await supply(line, found, self._supplies, self._parcel.target, room, launch=True)
                status = found.status or await edgerun.status()
                done = self._already(before, status) or await self._send_files(edgerun, status, before)
            self._facts[before.host.name] = found
            return done.to(done.state, cuts=line.cuts)

    async def _send_files(self, edgerun: Edgerun, status: ReleaseStatus, before: Outcome) -> Outcome:
        for file in self._parcel.files:
            if status.refused or file.sha256 not in status.store:  # the file there may be damaged, as the release is
                offset = min(status.incoming.get(file.sha256, 0), len(file.data))
                await edgerun.receive(file.sha256, file.data, offset)
        return before.to(SENT)

    def _already(self, before: Outcome, status: ReleaseStatus | None) -> Outcome | None:
        """What is to be said of a device before anything is sent; None where something is."""
        if status is None:
            return None
        if self._parcel.policy is None and self._brings_nothing(status):
            return before.to(CONFIRMED if status.state == "confirmed" else ON_TRIAL, release=status.current)
        if status.signed and not self._parcel.signatures:
            raise DeviceError("is in signed mode, and nobody has signed this bundle; use `edgekit sign`", 8)
        now = status.release(status.current)
        if status.state == "trial" and now is not None and now.sha256 != self._parcel.bundle.sha256:
            raise DeviceError(
                f"release {now.number} ({now.name} {now.version}) is on trial there; confirm it or roll it back first",
                4,
            )
        return None

    def _brings_nothing(self, status: ReleaseStatus) -> bool:
        """Whether all of the parcel is current there, and loads."""
        bundle, *more = (file.sha256 for file in self._parcel.files)
        return status.is_current(bundle, *more) and not status.refused

    async def install(self, before: Outcome) -> Outcome:
        """On trial, then confirmed by the device or from here."""
        outcome = before.to(INSTALLING)
        self._say(outcome)
        async with DeviceSession(self._network, before.host) as line:
            found = self._facts[before.host.name]
            edgerun = Edgerun(line, found, found.edgerun)
            if self._parcel.policy is not None:
                await edgerun.adopt(self._parcel.policy)
            statement = self._parcel.statement.sha256 if self._parcel.statement else None
            signatures = [file.sha256 for file in self._parcel.signatures]
            sha256 = self._parcel.bundle.sha256
            status = await edgerun.install(sha256, statement, signatures, self._options.proof)
            if not status.is_current(sha256) or status.current is None:
                raise DeviceError("says that it has installed the bundle, and another is current; look at it", 8)
            outcome = outcome.to(ON_TRIAL, release=status.current)
            self._say(outcome)
            if status.state != "confirmed" and self._options.confirm:
                status = await edgerun.confirm(status.current)
            ended = await self._wait(edgerun, status, outcome)
            return ended.to(ended.state, cuts=before.cuts + line.cuts)

    async def _wait(self, edgerun: Edgerun, status: ReleaseStatus, outcome: Outcome) -> Outcome:
        """For the device's own word; its outages are waited for too."""
        deadline, pause_s = time.monotonic() + self._options.wait_s, FIRST_LOOK_S
        lost: Unreachable | None = None
        while True:
            release = status.release(outcome.release)
            if release is not None and release.state == "failed":
                raise DeviceError(f"release {release.number} was taken back: {release.why}", TAKEN_BACK)
            if status.refused:
                raise DeviceError(status.refused, REFUSED_CODE)
            if status.state == "confirmed" and status.is_current(self._parcel.bundle.sha256):
                return outcome.to(CONFIRMED)
            if self._options.wait_s == 0:
                return outcome
            if time.monotonic() + pause_s > deadline:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_LOOK_S, pause_s * 1.5)
            try:
                status, lost = await edgerun.status(), None
            except Unreachable as error:
                lost = error
        if lost is not None:
            raise lost
        return outcome.to(
            ON_TRIAL,
            why=f"not confirmed within {self._options.wait_s:g} s; does `edgerun watch` run there? "
            "`edgekit fleet confirm` keeps it",
            exit_code=NOT_YET,
        )
