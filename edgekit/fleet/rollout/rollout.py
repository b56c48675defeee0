"""Work on many devices at once, up to a limit: send to all, then install in waves, and stop at the first problem."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.rollout import waves
from edgekit.fleet.rollout.outcomes import CONFIRMED, DEVICE_FAULTS, FAILED, ON_TRIAL, SENT, Outcome, failed_outcome

Step = Callable[[Outcome], Awaitable[Outcome]]
BUNDLE_FAULT_CODES = (5, 8)
"""Exit codes that indicate a problem with the bundle, or with who answers."""


@dataclass(frozen=True)
class RolloutPace:
    """`canary` devices of each class first, then a `share` of it, then all; `parallel` at the same time."""

    canary: int = 1
    share: float = 0.1
    parallel: int = 32


class Rollout:
    """`run` changes `outcomes`, by name; `on_change` is called with each changed one."""

    def __init__(self, hosts: Sequence[Host], pace: RolloutPace, on_change: Callable[[Outcome], object]) -> None:
        self.outcomes = {host.name: Outcome(host) for host in hosts}
        self._pace, self._on_change = pace, on_change
        self._classes: dict[str, list[Host]] = {}
        for host in hosts:
            self._classes.setdefault(host.device_class, []).append(host)
        self._hosts, self._order = hosts, {host.name: place for place, host in enumerate(hosts)}
        self._stopped: dict[str, str] = {}
        """By class: why nothing more is installed in it."""

    def say(self, outcome: Outcome) -> None:
        """Record the new state of a device."""
        self.outcomes[outcome.host.name] = outcome
        self._on_change(outcome)

    async def run(self, send: Step, install: Step | None) -> None:
        """Query all devices and send to them; then, with `install`, install in waves on those that lack it."""
        await self._each(self._hosts, send, self._doubt_of_sending)
        if install is None:
            return
        ready = {name for name, each in self.outcomes.items() if each.state in (SENT, ON_TRIAL)}
        while wave := self._next(ready):
            ready -= {host.name for host in wave}
            await self._each(wave, install, stopped=partial(self._failed, wave))
            self._stop_on_doubt(wave)
        self._say_who_is_left()

    def _stop_on_doubt(self, wave: Sequence[Host]) -> None:
        """Stop all classes if a device of the wave failed. Stop a class if none of its devices got the bundle."""
        for host in wave:
            if self._is_bad(host.name):
                for name in self._classes:
                    self._stopped.setdefault(
                        name, f"not installed, because of {host.name}: {self.outcomes[host.name].state}"
                    )
        for name in {host.device_class for host in wave}:
            if not any(self._has(host) for host in wave if host.device_class == name):
                self._stopped.setdefault(name, "not installed, because no device of the previous wave can be reached")

    def _next(self, ready: Collection[str]) -> list[Host]:
        """Return the next wave of every class that goes on, in the order of the inventory."""
        wave: list[Host] = []
        for name, members in self._classes.items():
            if name not in self._stopped:
                proven = sum(self._has(host) and host.name not in ready for host in members)
                wave += waves.next_wave(members, ready, proven, self._pace.canary, self._pace.share)
        return sorted(wave, key=lambda host: self._order[host.name])

    def _has(self, host: Host) -> bool:
        """Return whether it has the bundle: confirmed or, if that is not waited for, on trial."""
        outcome = self.outcomes[host.name]
        return outcome.state in (CONFIRMED, ON_TRIAL) and outcome.exit_code == 0

    def _doubt_of_sending(self, host: Host, error: Exception) -> None:
        """Stop a class if one of its devices rejects the bundle. Other errors concern only the device itself."""
        if isinstance(error, DeviceError) and error.exit_code in BUNDLE_FAULT_CODES:
            self._stopped.setdefault(host.device_class, f"not installed, because {host.name} failed while it was sent")

    def _is_bad(self, name: str) -> bool:
        """Return whether it failed in its wave, or was not confirmed although that was waited for."""
        outcome = self.outcomes[name]
        return outcome.state == FAILED or (outcome.state == ON_TRIAL and outcome.exit_code != 0)

    def _say_who_is_left(self) -> None:
        for outcome in self.outcomes.values():
            if outcome.state == SENT:
                self.say(outcome.to(SENT, why=self._stopped.get(outcome.host.device_class, "")))

    async def _each(
        self,
        hosts: Sequence[Host],
        step: Step,
        on_error: Callable[[Host, Exception], object] = lambda host, error: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the step on each; no further one is begun once `stopped` returns true."""

        async def run_one(host: Host) -> None:
            try:
                self.say(await step(self.outcomes[host.name]))
            except DEVICE_FAULTS as error:
                on_error(host, error)
                self.say(failed_outcome(self.outcomes[host.name], error))

        await for_each(hosts, run_one, self._pace.parallel, stopped)

    def _failed(self, hosts: Sequence[Host]) -> bool:
        return any(self._is_bad(host.name) for host in hosts)


async def for_each(
    hosts: Sequence[Host],
    work: Callable[[Host], Awaitable[None]],
    parallel: int,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Work on every host in order, up to `parallel` at once; none is begun once `stopped` returns true."""
    waiting = iter(hosts)

    async def work_on_next() -> None:
        for host in waiting:
            if stopped():
                return
            await work(host)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(parallel, len(hosts))):
            group.create_task(work_on_next())
