"""A request has been there at least since the event loop began to read what it reads now."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
import uvloop

from edgekit.serve.load_shedding import SHORT_ROUND_S, SHORT_ROUND_SHARE, LoopLag

TRIES = 20
"""What else runs on this machine may come between two rounds, which then looks like a rest."""


def test_all_that_is_read_in_one_round_came_when_the_round_began() -> None:
    async def main() -> None:
        loop, lag = asyncio.get_running_loop(), LoopLag()
        before = time.monotonic()
        lag.note_read(loop)
        first = lag.arrived_s()
        time.sleep(0.02)
        lag.note_read(loop)
        assert before <= first == lag.arrived_s() <= time.monotonic() - 0.02
        await asyncio.sleep(0.001)
        assert lag.arrived_s() >= first + 0.02

    asyncio.run(main())


def test_sockets_that_are_ready_together_share_a_round() -> None:
    """Two clients send while the loop is held up: both came before it went on."""
    arrived: list[float] = []

    class Reader(asyncio.Protocol):
        lag = LoopLag()

        def data_received(self, data: bytes) -> None:
            self.lag.note_read(asyncio.get_running_loop())
            arrived.append(self.lag.arrived_s())
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


def spin(seconds: float) -> None:
    """Compute; sleeping would be a rest."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_what_is_read_after_a_long_round_may_have_come_when_that_began() -> None:
    async def main() -> bool:
        loop, lag = asyncio.get_running_loop(), LoopLag()
        lag.note_read(loop)
        first = lag.arrived_s()
        spin(0.01)
        await asyncio.sleep(0)
        lag.note_read(loop)
        return lag.arrived_s() == first

    assert any(uvloop.run(main()) for _ in range(TRIES))


def test_what_is_read_after_a_rest_came_after_it() -> None:
    async def main() -> None:
        loop, lag = asyncio.get_running_loop(), LoopLag()
        lag.note_read(loop)
        await asyncio.sleep(0.01)
        rested = time.monotonic()
        lag.note_read(loop)
        assert lag.arrived_s() >= rested

    uvloop.run(main())


@pytest.mark.parametrize(("granted_s", "late"), [(0.02, True), (60.0, False)])
def test_rounds_are_cut_short_once_overload_lasts_longer_than_the_patience(granted_s: float, late: bool) -> None:
    async def main() -> bool:
        loop, lag = asyncio.get_running_loop(), LoopLag()
        for _ in range(10):
            lag.note_read(loop)
            spin(SHORT_ROUND_S)
            await asyncio.sleep(0)
        lag.note_read(loop)
        assert not lag.is_late(1.0)  # neither has it been waiting for so long
        spin(max(SHORT_ROUND_S, SHORT_ROUND_SHARE * 0.02) + 1e-3)
        return lag.is_late(granted_s)

    found = [uvloop.run(main()) for _ in range(TRIES)]
    assert any(found) if late else not any(found)


def test_a_burst_after_a_rest_may_use_all_the_time_that_it_has() -> None:
    async def main() -> None:
        loop, lag = asyncio.get_running_loop(), LoopLag()
        lag.note_read(loop)
        spin(2 * SHORT_ROUND_S)
        assert not lag.is_late(30.0)
        assert lag.is_late(SHORT_ROUND_S)

    uvloop.run(main())
