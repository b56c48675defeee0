"""Requests that offer another protocol: one is answered in HTTP/1.1, many in a row get one refusal."""

from __future__ import annotations

import asyncio

import pytest

from tests.serve import in_process
from tests.serve.server import Reply, cut

OFFER = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade%b\r\nUpgrade: x\r\n\r\n"
PLAIN = b"GET /v2 HTTP/1.1\r\nHost: x\r\n%b\r\n"


def answered(*requests: bytes) -> list[Reply]:
    async def run() -> bytes:
        return await in_process.exchanged(in_process.worker(receive_s=2.0), b"".join(requests))

    return cut(asyncio.run(run()))


@pytest.mark.parametrize("count", [2, 3, 500, 3000])
def test_many_in_a_row_end_in_one_refusal(count: int, caplog: pytest.LogCaptureFixture) -> None:
    [reply] = answered(*[OFFER % b""] * count)
    assert reply.status == 400
    assert "wait for the first answer" in reply.error
    assert not caplog.records


def test_a_single_one_is_answered_and_so_is_what_follows() -> None:
    assert [each.status for each in answered(OFFER % b"", PLAIN % b"Connection: close\r\n")] == [200, 200]
    assert [each.status for each in answered(OFFER % b", close")] == [200]
