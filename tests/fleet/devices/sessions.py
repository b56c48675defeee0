"""Sessions with one device of the rig: its host entry, its answer to hello, and a runner that is built once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from edgekit.fleet.devices.commands import Edgerun, say_hello
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.devices.session import DeviceSession
from edgekit.fleet.devices.supply import RunnerFile, Supplies, supply
from tests.fleet.devices.rig import Rig, address

T = TypeVar("T")


@functools.cache
def runner() -> RunnerFile:
    """Return the runner that is sent to devices."""
    return RunnerFile.build()


def host(rig: Rig, number: int = 0, **changes: object) -> Host:
    """Return the inventory entry of a device of the rig."""
    values: dict[str, object] = {"host": address(number), "port": rig.port, "user": rig.user, **changes}
    return Host(f"d{number}", "box", **values)  # type: ignore[arg-type]


def run_session(where: Host, work: Callable[[DeviceSession], Awaitable[T]], connect_s: float = 20.0) -> T:
    """Run `work` in a session with a device, and return its result."""

    async def run() -> T:
        async with DeviceSession(Network(connect_s), where) as session:
            return await work(session)

    return asyncio.run(run())


def hello(where: Host) -> HelloFacts:
    """Return what a device answers to hello."""
    return run_session(where, lambda session: say_hello(session, runner().sha256))


async def supply_runner(session: DeviceSession, target: str | None = None) -> tuple[Edgerun, HelloFacts]:
    """Send the runner if the device lacks it; return the runner and the facts about the device."""
    return await supply(session, await say_hello(session, runner().sha256), Supplies(runner()), target)
