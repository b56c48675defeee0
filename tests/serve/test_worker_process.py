"""A worker that does not read: the supervisor goes on, and its messages do not pile up."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

from edgekit.serve.supervisor import WorkerProcess

VERDICTS = {"identity": {"reason": "x" * 10_000}}
VERDICTS_SENT = 2000
MOST_BYTES = 4 << 20


async def received_lines() -> list[bytes]:
    """The lines for a worker that was stopped while 20 MB of verdicts came, and was then ordered to drain."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    worker = WorkerProcess(process, ours, lambda sketches: None)
    await worker.open()
    for _ in range(VERDICTS_SENT):
        worker.send_verdicts(VERDICTS)
        await asyncio.sleep(0)
    worker.drain()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 26)
    lines: list[bytes] = []
    while not lines or json.loads(lines[-1])["do"] != "drain":
        lines.append(await asyncio.wait_for(reader.readline(), 30))
    writer.close()
    await process.wait()
    return lines


def test_verdicts_for_a_worker_that_is_stuck_are_left_out_and_orders_are_not() -> None:
    lines = asyncio.run(received_lines())
    assert len(lines) > 1
    assert sum(map(len, lines)) < MOST_BYTES
