"""Many devices at once, and no more than so many: send to all, then install in waves, and stop at the first doubt."""

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
"""Exit codes of what speaks against the bundle, or against who answers."""


@dataclass(frozen=True)
class RolloutPace:
    """`canary` devices of each class first, then a `share` of it, then all; `parallel` at once."""

    canary: int = 1
    share: float = 0.1
    parallel: int = 32


class Rollout:
    """`run` changes `outcomes`, by name; `on_change` is called with each that has changed."""

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
        """A device has gone on."""
        self.outcomes[outcome.host.name] = outcome
        self._on_change(outcome)

    async def run(self, send: Step, install: Step | None) -> None:
        """All devices are asked and sent to; then, with `install`, those that lack it are installed on in waves."""
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
        """A failure in a wave stops all classes; a class of which nobody got it has proven nothing, and stops."""
        for host in wave:
            if self._is_bad(host.name):
                for name in self._classes:
                    self._stopped.setdefault(name, f"not installed, for {host.name} {self.outcomes[host.name].state}")
        for name in {host.device_class for host in wave}:
            if not any(self._has(host) for host in wave if host.device_class == name):
                self._stopped.setdefault(name, "not installed, for nobody of the wave before can be reached")

    def _next(self, ready: Collection[str]) -> list[Host]:
        """The next wave of every class that goes on, in the order of the inventory."""
        found: list[Host] = []
        for name, members in self._classes.items():
            if name not in self._stopped:
                proven = sum(self._has(host) and host.name not in ready for host in members)
                found += waves.next_wave(members, ready, proven, self._pace.canary, self._pace.share)
        return sorted(found, key=lambda host: self._order[host.name])

    def _has(self, host: Host) -> bool:
        """Whether it has the bundle, confirmed or, where that is not waited for, on trial."""
        found = self.outcomes[host.name]
        return found.state in (CONFIRMED, ON_TRIAL) and found.exit_code == 0

    def _doubt_of_sending(self, host: Host, error: Exception) -> None:
        """What a device says against the bundle speaks for its class; a line, a disk or a host key are its own."""
        if isinstance(error, DeviceError) and error.exit_code in BUNDLE_FAULT_CODES:
            self._stopped.setdefault(host.device_class, f"not installed, for {host.name} failed while it was sent")

    def _is_bad(self, name: str) -> bool:
        """Whether it failed in its wave, or is not confirmed although that was waited for."""
        found = self.outcomes[name]
        return found.state == FAILED or (found.state == ON_TRIAL and found.exit_code != 0)

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
        """The step on each; no further one is begun once it is `stopped`."""

        async def one(host: Host) -> None:
            try:
                self.say(await step(self.outcomes[host.name]))
            except DEVICE_FAULTS as error:
                on_error(host, error)
                self.say(failed_outcome(self.outcomes[host.name], error))

        await for_each(hosts, one, self._pace.parallel, stopped)

    def _failed(self, hosts: Sequence[Host]) -> bool:
        return any(self._is_bad(host.name) for host in hosts)


async def for_each(
    hosts: Sequence[Host],
    work: Callable[[Host], Awaitable[None]],
    parallel: int,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Work on every host, on so many at once, in their order; none is begun once it is `stopped`."""
    waiting = iter(hosts)

    async def go_on() -> None:
        for host in waiting:
            if stopped():
                return
            await work(host)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(parallel, len(hosts))):
            group.create_task(go_on())
