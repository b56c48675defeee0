"""What tests of one device need: a line to it, its facts, and a runner that is built once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from edgekit.fleet.devices.commands import Edgerun, hello
from edgekit.fleet.devices.connection import Network
from edgekit.fleet.devices.facts import Facts
from edgekit.fleet.devices.inventory import Host
from edgekit.fleet.devices.line import Line
from edgekit.fleet.devices.supply import Runner, Supplies, supply
from tests.fleet.devices.rig import Rig, address

T = TypeVar("T")


@functools.cache
def runner() -> Runner:
    """The one that is brought."""
    return Runner.build()


def host(rig: Rig, number: int = 0, **changes: object) -> Host:
    """A device of the rig."""
    values: dict[str, object] = {"host": address(number), "port": rig.port, "user": rig.user, **changes}
    return Host(f"d{number}", "box", **values)  # type: ignore[arg-type]


def talk(where: Host, work: Callable[[Line], Awaitable[T]], connect_s: float = 20.0) -> T:
    """Do something on a line to a device."""

    async def run() -> T:
        async with Line(Network(connect_s), where) as line:
            return await work(line)

    return asyncio.run(run())


def greeted(where: Host) -> Facts:
    """What it answers to hello."""
    return talk(where, lambda line: hello(line, runner().sha256))


async def ready(line: Line, target: str | None = None) -> tuple[Edgerun, Facts]:
    """The runner there, brought if need be."""
    return await supply(line, await hello(line, runner().sha256), Supplies(runner()), target)
