"""Many devices at once, and no more than so many: send to all, then install in waves, and stop at the first doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from edgekit.cli.fleet import waves
from edgekit.cli.fleet.outcomes import CONFIRMED, FAILED, FAULTS, ON_TRIAL, SENT, UNREACHABLE, Outcome, of_error
from edgekit.measure.devices.inventory import Host

Step = Callable[[Outcome], Awaitable[Outcome]]


@dataclass(frozen=True)
class Pace:
    """`canary` devices of each class first, then a `share` of it, then all; `parallel` at once."""

    canary: int = 1
    share: float = 0.1
    parallel: int = 32


class Rollout:
    """`run` changes `outcomes`, by name; `on_change` is called with each that has changed."""

    def __init__(self, hosts: Sequence[Host], pace: Pace, on_change: Callable[[Outcome], object]) -> None:
        self.outcomes = {host.name: Outcome(host) for host in hosts}
        self._hosts, self._pace, self._on_change = hosts, pace, on_change

    def say(self, outcome: Outcome) -> None:
        """A device has gone on."""
        self.outcomes[outcome.host.name] = outcome
        self._on_change(outcome)

    async def run(self, send: Step, install: Step | None) -> None:
        """All that are not confirmed yet, without those that were sent to; without `install` nothing more."""
        await self._each([host for host in self._hosts if self._state(host) not in (SENT, CONFIRMED)], send)
        if install is None:
            return
        ready = {name for name, each in self.outcomes.items() if each.state in (SENT, ON_TRIAL)}
        done = {name for name, each in self.outcomes.items() if each.state == CONFIRMED}
        for wave in waves.plan(self._hosts, ready, done, self._pace.canary, self._pace.share):
            await self._each(wave, install, stop=True)
            doubt = self._doubt(wave)
            if doubt:
                self._leave_the_rest(doubt)
                break

    def _state(self, host: Host) -> str:
        return self.outcomes[host.name].state

    def _doubt(self, wave: Sequence[Host]) -> str:
        """Why no further wave is begun; empty where nothing speaks against it."""
        bad = [name for name in (host.name for host in wave) if self._is_bad(name)]
        if bad:
            return f"not installed, for {bad[0]} {self.outcomes[bad[0]].state}"
        if all(self._state(host) == UNREACHABLE for host in wave):
            return "not installed, for nobody of the wave before can be reached"
        return ""

    def _is_bad(self, name: str) -> bool:
        """Whether it failed in its wave, or is not confirmed although that was waited for."""
        found = self.outcomes[name]
        return found.state == FAILED or (found.state == ON_TRIAL and found.exit_code != 0)

    def _leave_the_rest(self, why: str) -> None:
        for outcome in self.outcomes.values():
            if outcome.state == SENT:
                self.say(outcome.to(SENT, why=why))

    async def _each(self, hosts: Sequence[Host], step: Step, stop: bool = False) -> None:
        """The step on each; with `stop`, no further one is begun once a device has failed."""
        await each(hosts, lambda host: self._one(host, step), self._pace.parallel, lambda: stop and self._failed(hosts))

    def _failed(self, hosts: Sequence[Host]) -> bool:
        return any(self._is_bad(host.name) for host in hosts)

    async def _one(self, host: Host, step: Step) -> None:
        before = self.outcomes[host.name]
        try:
            self.say(await step(before))
        except FAULTS as error:
            self.say(of_error(self.outcomes[host.name], error))


async def each(
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
