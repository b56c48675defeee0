"""Select the devices of a command, and do its work on many of them at once, each with its own outcome."""

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
    """An inventory, and the selected hosts."""

    inventory: Inventory
    hosts: tuple[Host, ...]
    parallel: int

    @classmethod
    def read(cls, path: Path, only: tuple[str, ...], device_class: str | None, parallel: int) -> FleetSelection:
        """Read the inventory and select hosts. Raises ConfigError if the file or a name is wrong."""
        fleet = inventory.read_inventory(path)
        return cls(fleet, fleet.chosen(only, device_class), parallel)


Work = Callable[[DeviceSession, HelloFacts, Outcome], Awaitable[Outcome]]


def run_on_each(
    selection: FleetSelection, label: str, work: Work, quiet: bool, lines: bool = True, runner: str = ""
) -> list[Outcome]:
    """Say hello to each device, then do the work. Returns the outcomes in the order of the inventory.

    With `lines`, each failure is printed when it happens, for commands that print no table at the end. `runner` is the
    digest of the preferred runner; a device that lacks it answers with the runner that its services start.
    """
    results = {host.name: Outcome(host) for host in selection.hosts}
    network = Network()
    with live_display.live_board(label, lambda: _progress_text(list(results.values())), quiet) as board:

        async def run_one(host: Host) -> None:
            before = results[host.name]
            try:
                async with DeviceSession(network, host) as session:
                    results[host.name] = await work(session, await say_hello(session, runner), before)
            except DEVICE_FAULTS as error:
                results[host.name] = failed_outcome(before, error)
                if lines:
                    board.note(results[host.name])

        asyncio.run(for_each(selection.hosts, run_one, selection.parallel))
    return list(results.values())


def _progress_text(results: Sequence[Outcome]) -> str:
    answered = sum(each.state != outcomes.WAITING for each in results)
    return f"answered {answered}/{len(results)}"
