"""Clients that are slow, silent or too long: each gets its code in JSON and loses its connection; others are served."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.serve.conftest import Start
from tests.serve.server import Reply, Server, cut, next_reply, replies

pytestmark = pytest.mark.processes

RECEIVE_S = 1.0
INFER = "/v2/models/tiny/infer"
RAW = bytes(range(64))


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path]) -> Server:
    return start(bundles["onnx"], "--receive-s", RECEIVE_S, "--max-body-mb", 1, "--max-connections", 20)


@pytest.fixture(autouse=True)
def goes_on(server: Server) -> object:
    """Whatever a test does, the next request is answered."""
    yield
    assert server.post(INFER, RAW, {"Inference-Header-Content-Length": "0"}).status == 200
    assert "Traceback" not in server.log_text()


def head(path: str = INFER, length: int | None = 64, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Inference-Header-Content-Length: 0", *more]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


def whole(server: Server, *pieces: bytes) -> list[Reply]:
    """What comes back for bytes, until the server closes."""
    with server.connect() as connection:
        for piece in pieces:
            connection.sendall(piece)
        return replies(connection)


def one(answers: list[Reply], status: int) -> Reply:
    """The only answer; it is JSON and says that the connection ends."""
    [reply] = answers
    assert reply.status == status, reply
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["connection"] == "close"
    assert reply.error
    return reply


def test_a_connection_that_says_nothing_is_closed_without_a_word(server: Server) -> None:
    assert whole(server) == []


@pytest.mark.parametrize("piece", [b"P", b"POST /v2", b"GET / HTTP/1.1\r\nHost: x\r\n", head()[:-2]])
def test_a_request_with_half_a_head_gets_408(server: Server, piece: bytes) -> None:
    assert "1 s" in one(whole(server, piece), 408).error


@pytest.mark.parametrize("body", [b"", RAW[:63]])
def test_a_body_that_stalls_gets_408(server: Server, body: bytes) -> None:
    one(whole(server, head(), body), 408)


def test_headers_that_trickle_in_get_408_although_something_comes_all_the_time(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\n")
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(0.1):
                try:
                    connection.sendall(b"X-A: b\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            data = b""
            while piece := connection.recv(4096):
                data += piece
        finally:
            stop.set()
            thread.join()
    one(cut(data), 408)


def test_a_second_request_on_a_connection_has_its_own_deadline(server: Server) -> None:
    with server.connect() as connection:
        for _ in range(4):
            time.sleep(RECEIVE_S / 2)
            connection.sendall(head() + RAW)
            assert next_reply(connection).status == 200
        connection.sendall(head())
        one(replies(connection), 408)


@pytest.mark.parametrize("size", [70_000, 1 << 20])
@pytest.mark.parametrize("whole_head", [True, False])
def test_headers_that_are_too_long_get_431(server: Server, size: int, whole_head: bool) -> None:
    with server.connect() as connection:
        try:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * size)
            if whole_head:
                connection.sendall(b"\r\n\r\n")
        except OSError:  # it need not read what it will not take
            pass
        one(replies(connection), 431)


def test_many_short_headers_are_too_long_together(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 10_000)
        one(replies(connection), 431)


@pytest.mark.parametrize("size", [70_000, 200_000, 900_000])
def test_a_body_longer_than_headers_may_be_is_no_header(server: Server, size: int) -> None:
    request = {"inputs": [{"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": list(RAW)}]}
    body = json.dumps(request).encode() + b" " * size
    for _ in range(5):
        assert server.post(INFER, body).status == 200
        assert server.post("/v2/models/tiny/versions/1.2.0/infer", body).status == 200


@pytest.mark.parametrize("size", [(1 << 20) + 1, 8 << 20, 10**15])
def test_a_body_that_is_announced_too_long_gets_413_before_it_is_sent(server: Server, size: int) -> None:
    assert str(size) in one(whole(server, head(length=size)), 413).error


@pytest.mark.parametrize("path", [INFER, "/predict"])
def test_a_client_that_sends_a_body_that_is_too_long_all_the_same_reads_413(server: Server, path: str) -> None:
    for _ in range(5):
        with server.connect() as connection:
            sent = send_all(connection, head(path, 8 << 20) + b"x" * (8 << 20))
            one(replies(connection), 413)
            sent.join()


def test_chunks_that_are_too_long_together_get_413(server: Server) -> None:
    with server.connect() as connection:
        sent = send_all(connection, chunked(8, b"y" * (1 << 20)))
        assert "1048576" in one(replies(connection), 413).error
        sent.join()


def chunked(count: int, piece: bytes) -> bytes:
    return (
        head(INFER, None, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n" % (len(piece), piece) * count + b"0\r\n\r\n"
    )


def send_all(connection: socket.socket, data: bytes) -> threading.Thread:
    """Send without minding that the other side ends."""

    def send() -> None:
        with contextlib.suppress(OSError):
            connection.sendall(data)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_body_in_chunks_is_taken(server: Server) -> None:
    with server.connect() as connection:
        for size in (1, 7, 64):
            pieces = [RAW[first : first + size] for first in range(0, 64, size)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            connection.sendall(head(INFER, None, "Transfer-Encoding: chunked") + body)
            assert next_reply(connection).status == 200


def test_trailers_without_end_are_not_kept(server: Server) -> None:
    with server.connect() as connection:
        sent = send_all(
            connection, head(INFER, None, "Transfer-Encoding: chunked") + b"0\r\nX-Trailer: " + b"a" * (16 << 20)
        )
        one(replies(connection), 431)
        sent.join()


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    request = {"inputs": [{"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": list(RAW)}]}
    sent = b""
    for number in range(50):
        body = json.dumps({"id": str(number), **request}).encode()
        last = ["Connection: close"] if number == 49 else []
        lines = [f"POST {INFER} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *last, "", ""]
        sent += "\r\n".join(lines).encode() + body
    found = whole(server, sent)
    assert [reply.status for reply in found] == [200] * 50
    assert [reply.json()["id"] for reply in found] == [str(number) for number in range(50)]


def test_who_expects_100_gets_it_before_the_answer(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(head(INFER, 64, "Expect: 100-continue"))
        assert next_reply(connection).status == 100
        connection.sendall(RAW)
        assert next_reply(connection).status == 200


def test_who_expects_100_for_too_long_a_body_gets_413_at_once(server: Server) -> None:
    one(whole(server, head(INFER, 8 << 20, "Expect: 100-continue")), 413)


def test_one_connection_too_many_gets_503_and_the_others_stay(server: Server) -> None:
    opened = [server.connect() for _ in range(20)]
    try:
        for connection in opened:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert next_reply(connection).status == 200
        for _ in range(5):
            reply = one(whole(server, head() + RAW), 503)
            assert int(reply.headers["retry-after"]) > 0
            assert "20 connections" in reply.error
        for connection in opened:
            connection.sendall(head() + RAW)
            assert next_reply(connection).status == 200
    finally:
        for connection in opened:
            connection.close()
    until = time.monotonic() + 10
    while server.get("/v2").status != 200:
        assert time.monotonic() < until


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS where none is
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /é HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        b"CONNECT a:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nBad\x00Name: y\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_of_http_1_1_gets_400(server: Server, data: bytes) -> None:
    before = server.log_text()
    one(whole(server, data), 400)
    assert server.log_text() == before  # a line for each would let anybody fill a disk


def test_a_request_for_the_server_itself_has_no_path(server: Server) -> None:
    [reply] = whole(server, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert reply.status == 404
    assert "*" in reply.error


def test_an_upgrade_is_ignored_and_the_request_answered(server: Server) -> None:
    offered = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    before = server.log_text()
    with server.connect() as connection:
        connection.sendall(head(INFER, 64, *offered) + RAW)
        first = next_reply(connection)
        assert first.status == 200
        try:
            connection.sendall(head(INFER, 64, "Connection: close") + RAW)
            rest = replies(connection)
        except ConnectionError:
            rest = []
    assert [reply.status for reply in rest] == [200] or first.headers.get("connection") == "close"
    assert server.log_text() == before


def test_http_1_0_is_answered_and_closed(server: Server) -> None:
    [reply] = whole(server, b"GET /v2/health/live HTTP/1.0\r\n\r\n")
    assert reply.status == 200


def test_half_a_request_behind_a_whole_one_may_come_later(server: Server) -> None:
    with server.connect() as connection:
        second = head(INFER, 64, "Connection: close") + RAW
        connection.sendall(head() + RAW + second[:-10])
        first = next_reply(connection)
        time.sleep(RECEIVE_S / 4)
        connection.sendall(second[-10:])
        found = [first, *replies(connection)]
    assert [reply.status for reply in found] == [200, 200]


def test_a_client_that_does_not_read_is_let_go(server: Server) -> None:
    """Answers that nobody takes must not hold a connection for ever."""
    body = json.dumps(
        {"inputs": [{"name": "image", "shape": [250, 8, 8, 1], "datatype": "UINT8", "data": [7] * 64 * 250}]}
    ).encode()
    one_request = head(INFER, len(body)).replace(b"Inference-Header-Content-Length: 0\r\n", b"") + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", server.port))
        with pytest.raises(OSError, match=re.compile("reset|pipe", re.IGNORECASE)):
            while True:
                connection.sendall(one_request)


def test_the_admin_port_has_the_same_bounds(server: Server) -> None:
    host, port = server.admin.split(":")
    for sent, status in (
        (b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", 408),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 70_000, 431),
        (b"nonsense\r\n\r\n", 400),
    ):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(sent)
            one(replies(connection), status)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        size = 4 << 20
        thread = send_all(
            connection,
            b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
            % (size, b"x" * size),
        )
        [reply] = replies(connection)
        thread.join()
    assert reply.status == 413
