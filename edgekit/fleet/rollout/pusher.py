"""What a push does on one device: send, which changes nothing there yet, then install and wait for confirmation."""

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
from edgekit.fleet.rollout.outcomes import CONFIRMED, INSTALLING, ON_PROBATION, REFUSED_CODE, SENDING, SENT, Outcome
from edgekit.fleet.rollout.payload import Payload

FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 5.0
"""The first and the longest pause between two checks of whether the device has confirmed the release."""
TAKEN_BACK, NOT_YET = 5, 7


@dataclass(frozen=True)
class PushOptions:
    """Options of a push.

    `wait_s` is how long to wait for the device itself to confirm the release; with 0, the push does not wait. With
    `confirm`, this machine confirms the release. `install_options` are passed to `edgerun install`.
    """

    wait_s: float = 180.0
    confirm: bool = False
    install_options: tuple[str, ...] = ()


class Pusher:
    """Pushes a payload to devices by `send` and then `install`, which take a device's outcome and return the next one.

    `on_outcome` is called with the intermediate outcomes.
    """

    def __init__(
        self,
        network: Network,
        supplies: Supplies,
        payload: Payload,
        options: PushOptions,
        on_outcome: Callable[[Outcome], object],
    ) -> None:
        self._network, self._supplies, self._payload, self._options = network, supplies, payload, options
        self._on_outcome = on_outcome
        self._facts: dict[str, HelloFacts] = {}

    async def send(self, before: Outcome) -> Outcome:
        """Send the payload to a device, together with the runner and packages that it lacks."""
        self._on_outcome(before.to(SENDING))
        async with DeviceSession(self._network, before.host) as session:
            hello = await say_hello(session, self._supplies.runner.sha256)
            done = self._already(before, hello.status)
            if done is None:
                needed_bytes = sum(len(file.data) for file in self._payload.files)
                edgerun, hello = await supply(
                    session, hello, self._supplies, self._payload.target, needed_bytes, launch=True
                )
                status = hello.status or await edgerun.status()
                done = self._already(before, status) or await self._send_files(edgerun, status, before)
            self._facts[before.host.name] = hello
            return done.to(done.state, cuts=session.cuts)

    async def _send_files(self, edgerun: Edgerun, status: ReleaseStatus, before: Outcome) -> Outcome:
        for file in self._payload.files:
            if status.refused or file.sha256 not in status.store:  # if the release is refused, its files may be damaged
                offset = min(status.incoming.get(file.sha256, 0), len(file.data))
                await edgerun.receive(file.sha256, file.data, offset)
        return before.to(SENT)

    def _already(self, before: Outcome, status: ReleaseStatus | None) -> Outcome | None:
        """Return the outcome if nothing needs to be sent, else None."""
        if status is None:
            return None
        if self._payload.policy is None and self._is_installed(status):
            return before.to(CONFIRMED if status.state == "confirmed" else ON_PROBATION, release=status.current)
        if status.signed and not self._payload.signatures:
            raise DeviceError("is in signed mode, and nobody has signed this bundle; use `edgekit sign`", 8)
        current = status.release(status.current)
        if status.state == "trial" and current is not None and current.sha256 != self._payload.bundle.sha256:
            raise DeviceError(
                f"release {current.number} ({current.name} {current.version}) is on probation there; "
                "confirm it or roll it back first",
                4,
            )
        return None

    def _is_installed(self, status: ReleaseStatus) -> bool:
        """Return whether the whole payload is the device's current release and can be loaded."""
        bundle, *more = (file.sha256 for file in self._payload.files)
        return status.is_current(bundle, *more) and not status.refused

    async def install(self, before: Outcome) -> Outcome:
        """Install the payload on probation. Then confirm it, or wait until the device confirms it."""
        outcome = before.to(INSTALLING)
        self._on_outcome(outcome)
        async with DeviceSession(self._network, before.host) as session:
            hello = self._facts[before.host.name]
            edgerun = Edgerun(session, hello, hello.edgerun)
            if self._payload.policy is not None:
                await edgerun.adopt(self._payload.policy)
            statement = self._payload.statement.sha256 if self._payload.statement else None
            signatures = [file.sha256 for file in self._payload.signatures]
            sha256 = self._payload.bundle.sha256
            status = await edgerun.install(sha256, statement, signatures, self._options.install_options)
            if not status.is_current(sha256) or status.current is None:
                raise DeviceError(
                    "reported that it has installed the bundle, but another release is current; check that device", 8
                )
            outcome = outcome.to(ON_PROBATION, release=status.current)
            self._on_outcome(outcome)
            if status.state != "confirmed" and self._options.confirm:
                status = await edgerun.confirm(status.current)
            result = await self._wait(edgerun, status, outcome)
            return result.to(result.state, cuts=before.cuts + session.cuts)

    async def _wait(self, edgerun: Edgerun, status: ReleaseStatus, outcome: Outcome) -> Outcome:
        """Wait for the device itself to confirm the release, even if it is unreachable for a while."""
        deadline, pause_s = time.monotonic() + self._options.wait_s, FIRST_LOOK_S
        lost: Unreachable | None = None
        while True:
            release = status.release(outcome.release)
            if release is not None and release.state == "failed":
                raise DeviceError(f"release {release.number} was rolled back: {release.why}", TAKEN_BACK)
            if status.refused:
                raise DeviceError(status.refused, REFUSED_CODE)
            if status.state == "confirmed" and status.is_current(self._payload.bundle.sha256):
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
            ON_PROBATION,
            why=f"not confirmed within {self._options.wait_s:g} s; is `edgerun watch` running there? `edgekit "
            f"fleet confirm` confirms it",
            exit_code=NOT_YET,
        )
