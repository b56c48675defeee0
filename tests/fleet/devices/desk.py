"""What tests of one device need: a line to it, its facts, and a runner that is built once."""

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
    """The one that is brought."""
    return RunnerFile.build()


def host(rig: Rig, number: int = 0, **changes: object) -> Host:
    """A device of the rig."""
    values: dict[str, object] = {"host": address(number), "port": rig.port, "user": rig.user, **changes}
    return Host(f"d{number}", "box", **values)  # type: ignore[arg-type]


def talk(where: Host, work: Callable[[DeviceSession], Awaitable[T]], connect_s: float = 20.0) -> T:
    """Do something on a line to a device."""

    async def run() -> T:
        async with DeviceSession(Network(connect_s), where) as line:
            return await work(line)

    return asyncio.run(run())


def greeted(where: Host) -> HelloFacts:
    """What it answers to hello."""
    return talk(where, lambda line: say_hello(line, runner().sha256))


async def ready(line: DeviceSession, target: str | None = None) -> tuple[Edgerun, HelloFacts]:
    """The runner there, brought if need be."""
    return await supply(line, await say_hello(line, runner().sha256), Supplies(runner()), target)
