"""A request has been there at least since the event loop began to read what it reads now."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import uvloop

from edgekit.serve.turn import Turn


def test_all_that_is_read_in_one_round_came_when_the_round_began() -> None:
    async def main() -> None:
        loop, turn = asyncio.get_running_loop(), Turn()
        before = time.monotonic()
        turn.reads(loop)
        first = turn.arrived_s()
        time.sleep(0.02)
        turn.reads(loop)
        assert before <= first == turn.arrived_s() <= time.monotonic() - 0.02
        await asyncio.sleep(0.001)
        assert turn.arrived_s() >= first + 0.02

    asyncio.run(main())


def test_sockets_that_are_ready_together_share_a_round() -> None:
    """Two clients send while the loop is held up: both came before it went on."""
    arrived: list[float] = []

    class Reader(asyncio.Protocol):
        turn = Turn()

        def data_received(self, data: bytes) -> None:
            self.turn.reads(asyncio.get_running_loop())
            arrived.append(self.turn.arrived_s())
            time.sleep(0.02)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Reader, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        await asyncio.sleep(0.05)
        for _, writer in clients:
            writer.write(b"x")
        while len(arrived) < len(clients):
            await asyncio.sleep(0.01)
        for _, writer in clients:
            writer.close()
        server.close()

    uvloop.run(main())
    assert np.ptp(arrived) < 0.02
