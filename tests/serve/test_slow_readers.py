"""Clients that stop reading, or send rubbish behind a request: their connections end, and nothing is logged."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.serve.conftest import Start
from tests.serve.memory import sockets
from tests.serve.server import INFER, Server, replies

pytestmark = pytest.mark.processes

RECEIVE_S = 1.0
PAGE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_PAGE = PAGE.replace(b"Host: x", b"Host: x\r\nConnection: close")
AT_ONCE = 5
"""Pages together are far below the 64 KiB from which the event loop says that a client takes nothing."""


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path]) -> Server:
    return start(bundles["onnx"], "--receive-s", RECEIVE_S)


def held_by_system(connection: socket.socket) -> int:
    """Bytes that the server has written to this connection, and the client has not taken; 0 where it is gone."""
    (_, ours), (_, theirs) = connection.getsockname(), connection.getpeername()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local.rpartition(":")[2], remote.rpartition(":")[2]) == (f"{theirs:04X}", f"{ours:04X}"):
            return int(queues.partition(":")[0], 16)
    return 0


def takes_more(connection: socket.socket, before: int) -> bool:
    """Whether the system takes all of the next answers; what it does not take stays in the server's own buffer."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        if held_by_system(connection) >= before + AT_ONCE * 5000:
            return True
        time.sleep(0.005)
    return False


def test_a_last_answer_that_is_never_read_does_not_hold_a_connection(server: Server) -> None:
    """The system's buffer is full, and little is left in the server's own: it closes, and must not wait for ever."""
    before = sockets(server.workers)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        held = 0
        while True:
            connection.sendall(PAGE * AT_ONCE)
            if not takes_more(connection, held):
                break
            held = held_by_system(connection)
        connection.sendall(LAST_PAGE)
        assert sockets(server.workers) == before + 1
        until = time.monotonic() + RECEIVE_S + 5
        while sockets(server.workers) > before:
            assert time.monotonic() < until, "the connection stays"
            time.sleep(0.05)


@pytest.mark.parametrize("rubbish", [b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_rubbish_behind_a_request_that_expects_100_is_refused_without_a_word(
    server: Server, rubbish: bytes, method: str
) -> None:
    before = server.log_text()
    head = f"{method} {INFER} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    for length, body in ((0, b""), (64, bytes(64))):
        with server.connect() as connection:
            connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + body + rubbish)
            assert [reply.status for reply in replies(connection)][-1] == 400
    assert server.get("/v2").status == 200
    assert server.log_text() == before
