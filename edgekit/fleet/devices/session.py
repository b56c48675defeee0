"""A device over several connections: what a broken connection interrupted is repeated on the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar

from edgekit.fleet.devices.connection import Connection, Network
from edgekit.fleet.devices.device_errors import ConnectionCut, Unreachable
from edgekit.fleet.devices.inventory import Host

T = TypeVar("T")
PAUSES_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Pauses before each new connection after a break without progress."""
MOST_CUTS = 1000
"""How many breaks are tolerated in all, even with progress between them: a malicious device could break the connection
forever."""


class DeviceSession:
    """A device that can still be used after a connection broke, as in `async with DeviceSession(network, host) as …`.

    The first connection is opened when it is needed.
    """

    def __init__(self, network: Network, host: Host) -> None:
        self.host, self._network = host, network
        self._connection: Connection | None = None
        self._idle = 0
        self.cuts = 0

    async def __aenter__(self) -> DeviceSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def drop(self) -> None:
        """Close the connection; the next operation opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def connection(self) -> Connection:
        """Return the open connection, or a new one. If the very first connection fails, it is not tried again."""
        while self._connection is None:
            try:
                self._connection = await self._network.open(self.host)
            except Unreachable as error:
                if not self.cuts:
                    raise
                await self.cut(error)
        return self._connection

    async def cut(self, error: Unreachable) -> None:
        """Handle a broken connection: wait a little, or raise the error if waiting has not helped."""
        self.drop()
        self.cuts += 1
        if self._idle >= len(PAUSES_S) or self.cuts > MOST_CUTS:
            raise Unreachable(f"{error}; gave up after {self.cuts} attempts") from None
        await asyncio.sleep(PAUSES_S[self._idle])
        self._idle += 1

    def progress(self) -> None:
        """Note that there was progress, so that the next break counts as the first one again."""
        self._idle = 0

    async def retry(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do the work, and repeat it each time that the connection breaks. It must be safe to do more than once."""
        while True:
            connection = await self.connection()
            try:
                result = await work(connection)
            except ConnectionCut as error:
                await self.cut(error)
            else:
                self.progress()
                return result
