"""The rollout of a bundle to many devices: send to all, then install in waves, and stop after a wave with a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.rollout import waves
from edgekit.fleet.rollout.outcomes import CONFIRMED, DEVICE_FAULTS, FAILED, ON_PROBATION, SENT, Outcome, failed_outcome

Step = Callable[[Outcome], Awaitable[Outcome]]
BUNDLE_FAULT_CODES = (5, 8)
"""Exit codes that indicate a problem with the bundle, or with the identity of a device."""


@dataclass(frozen=True)
class RolloutPace:
    """The sizes of the waves in each class: first `canary` devices, then a `share` of the class, then all others.

    Up to `parallel` devices are worked on at the same time.
    """

    canary: int = 1
    share: float = 0.1
    parallel: int = 32


class Rollout:
    """A rollout to these hosts. `run` updates `outcomes`, by host name, and calls `on_change` with each new outcome."""

    def __init__(self, hosts: Sequence[Host], pace: RolloutPace, on_change: Callable[[Outcome], object]) -> None:
        self.outcomes = {host.name: Outcome(host) for host in hosts}
        self._pace, self._on_change = pace, on_change
        self._classes: dict[str, list[Host]] = {}
        for host in hosts:
            self._classes.setdefault(host.device_class, []).append(host)
        self._hosts, self._order = hosts, {host.name: place for place, host in enumerate(hosts)}
        self._stopped: dict[str, str] = {}
        """For each class that was stopped, why nothing more is installed in it."""

    def update(self, outcome: Outcome) -> None:
        """Record the new state of a device."""
        self.outcomes[outcome.host.name] = outcome
        self._on_change(outcome)

    async def run(self, send: Step, install: Step | None) -> None:
        """Query all devices and send to them. With `install`, then install in waves on the devices that need it."""
        await self._run_on_each(self._hosts, send, self._stop_class_on_rejection)
        if install is None:
            return
        ready = {name for name, each in self.outcomes.items() if each.state in (SENT, ON_PROBATION)}
        while wave := self._next(ready):
            ready -= {host.name for host in wave}
            await self._run_on_each(wave, install, stopped=partial(self._has_any_failed, wave))
            self._stop_after(wave)
        self._explain_not_installed()

    def _stop_after(self, wave: Sequence[Host]) -> None:
        """Stop all classes if a device of the wave failed.

        If none of the wave's devices of a class got the bundle, stop only this class.
        """
        for host in wave:
            if self._has_failed(host.name):
                state = self.outcomes[host.name].state
                reason = "was not confirmed" if state == ON_PROBATION else state
                for name in self._classes:
                    self._stopped.setdefault(name, f"not installed, because {host.name} {reason}")
        for name in {host.device_class for host in wave}:
            if not any(self._has_bundle(host) for host in wave if host.device_class == name):
                self._stopped.setdefault(name, "not installed, because no device of the previous wave can be reached")

    def _next(self, ready: Collection[str]) -> list[Host]:
        """Return the next wave of all classes that were not stopped, in the order of the inventory."""
        wave: list[Host] = []
        for name, members in self._classes.items():
            if name not in self._stopped:
                installed = sum(self._has_bundle(host) and host.name not in ready for host in members)
                wave += waves.next_wave(members, ready, installed, self._pace.canary, self._pace.share)
        return sorted(wave, key=lambda host: self._order[host.name])

    def _has_bundle(self, host: Host) -> bool:
        """Return whether a device has the bundle: confirmed or, if the push does not wait for that, on probation."""
        outcome = self.outcomes[host.name]
        return outcome.state in (CONFIRMED, ON_PROBATION) and outcome.exit_code == 0

    def _stop_class_on_rejection(self, host: Host, error: Exception) -> None:
        """Stop a class if one of its devices rejects the bundle. Other errors concern only the device itself."""
        if isinstance(error, DeviceError) and error.exit_code in BUNDLE_FAULT_CODES:
            self._stopped.setdefault(host.device_class, f"not installed, because {host.name} rejected it")

    def _has_failed(self, name: str) -> bool:
        """Return whether a device failed in its wave, or was not confirmed although the push waited for that."""
        outcome = self.outcomes[name]
        return outcome.state == FAILED or (outcome.state == ON_PROBATION and outcome.exit_code != 0)

    def _explain_not_installed(self) -> None:
        for outcome in self.outcomes.values():
            if outcome.state == SENT:
                self.update(outcome.to(SENT, why=self._stopped.get(outcome.host.device_class, "")))

    async def _run_on_each(
        self,
        hosts: Sequence[Host],
        step: Step,
        on_error: Callable[[Host, Exception], object] = lambda host, error: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the step on each host. Once `stopped` returns true, it is not begun on any further host."""

        async def run_one(host: Host) -> None:
            try:
                self.update(await step(self.outcomes[host.name]))
            except DEVICE_FAULTS as error:
                on_error(host, error)
                self.update(failed_outcome(self.outcomes[host.name], error))

        await for_each(hosts, run_one, self._pace.parallel, stopped)

    def _has_any_failed(self, hosts: Sequence[Host]) -> bool:
        return any(self._has_failed(host.name) for host in hosts)


async def for_each(
    hosts: Sequence[Host],
    work: Callable[[Host], Awaitable[None]],
    parallel: int,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Do the work on every host in order, on up to `parallel` at once, until `stopped` returns true.

    Work that has begun by then is completed.
    """
    waiting = iter(hosts)

    async def work_on_next() -> None:
        for host in waiting:
            if stopped():
                return
            await work(host)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(parallel, len(hosts))):
            group.create_task(work_on_next())
