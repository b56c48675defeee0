"""The devices that a command is for, and what is done with each of them: many at once, each with its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.fleet.devices import inventory
from edgekit.fleet.devices.commands import say_hello
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.inventory import Host, Inventory
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.rollout import live_display, outcomes
from edgekit.fleet.rollout.outcomes import DEVICE_FAULTS, Outcome, failed_outcome
from edgekit.fleet.rollout.rollout import for_each


@dataclass(frozen=True)
class FleetSelection:
    """An inventory, and those of its hosts that are meant."""

    inventory: Inventory
    hosts: tuple[Host, ...]
    parallel: int

    @classmethod
    def read(cls, path: Path, only: tuple[str, ...], device_class: str | None, parallel: int) -> FleetSelection:
        """ConfigError where the file or a name is wrong."""
        found = inventory.read_inventory(path)
        return cls(found, found.chosen(only, device_class), parallel)


Work = Callable[[DeviceSession, HelloFacts, Outcome], Awaitable[Outcome]]


def run_on_each(
    chosen: FleetSelection, label: str, work: Work, quiet: bool, lines: bool = True, runner: str = ""
) -> list[Outcome]:
    """Say hello to each device, then do the work; the outcomes in the order of the inventory.

    `lines`: a device that fails is told of at once, for no table has it. `runner`: digest of the one that is to answer
    where it is there; else it is the one that services start.
    """
    found = {host.name: Outcome(host) for host in chosen.hosts}
    network = Network()
    with live_display.live_board(label, lambda: _asked(list(found.values())), quiet) as board:

        async def one(host: Host) -> None:
            before = found[host.name]
            try:
                async with DeviceSession(network, host) as line:
                    found[host.name] = await work(line, await say_hello(line, runner), before)
            except DEVICE_FAULTS as error:
                found[host.name] = failed_outcome(before, error)
                if lines:
                    board.note(found[host.name])

        asyncio.run(for_each(chosen.hosts, one, chosen.parallel))
    return list(found.values())


def _asked(found: Sequence[Outcome]) -> str:
    answered = sum(each.state != outcomes.WAITING for each in found)
    return f"answered {answered}/{len(found)}"
