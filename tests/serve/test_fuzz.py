"""Requests with seeded faults: answers in JSON or a closed connection, no traceback, no hang, no growth."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.serve.conftest import Start
from tests.serve.server import Server, cut
from tests.serve.test_lifecycle import INFER, RAW
from tests.serve.test_predict import BAD, png

pytestmark = pytest.mark.processes

SEED = 20
LAST = b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LONGEST_S = 12.0
MOST_GROWTH_KB = 6 << 10
STATUSES = {100, 200, 400, 404, 405, 408, 413, 415, 431, 503}


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path]) -> Server:
    return start(bundles["onnx"], "--receive-s", 0.1, "--max-body-mb", 1)


def seeds() -> list[bytes]:
    """Good requests, as bytes."""
    tensor = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": [7] * 64}
    outputs = [{"name": "output", "parameters": {"classification": 2}}, {"name": "answer"}]
    whole = json.dumps({"id": "a", "inputs": [tensor], "outputs": outputs, "parameters": {"timeout": 10**6}}).encode()
    del tensor["data"]
    header = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 64}}]}).encode()
    made = [
        request("POST", INFER, whole),
        request("POST", INFER, header + bytes(64), f"Inference-Header-Content-Length: {len(header)}"),
        request("POST", INFER, bytes(64), "Inference-Header-Content-Length: 0", "X-Request-Timeout-Ms: 1000"),
        request("PUT", "/predict?model=tiny&top=3", png(8, 8, bytes(72)), "Content-Type: image/png"),
        request("POST", "/predict", BAD["npy, another shape"]),
        request("GET", "/v2/models/tiny/versions/1.2.0/stats", b""),
        request("GET", "/status", b"", "Authorization: Bearer abc"),
    ]
    pieces = b"".join(b"%x\r\n%s\r\n" % (8, bytes(8)) for _ in range(8)) + b"0\r\n\r\n"
    made.append(
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
        + pieces
    )
    return made


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


WORDS = [
    b"\0", b"\xff", b"\r\n", b"\r\n\r\n", b"-1", b"0", b"99999999999999999999", b"1e999", b"null", b"[", b"{", b'"',
    b"\\u0000",
    b"\xed\xa0\x80", b"NaN", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Content-Length: 5\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b" HTTP/1.0", b"%00", b"../", b"a" * 3000,
]  # fmt: skip


def broken(rng: random.Random, good: list[bytes]) -> bytes:
    """One or two good requests with up to four faults."""
    data = bytearray(b"".join(rng.choices(good, k=rng.choice((1, 1, 2)))))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place:place] = rng.choice(WORDS)
        elif kind == 2:
            del data[place : place + rng.randint(1, 40)]
        elif kind == 3:
            data[place:place] = data[rng.randrange(len(data) + 1) :][: rng.randint(1, 200)]
        else:
            word = rng.choice(WORDS)
            data[place : place + len(word)] = word
    return bytes(data)


def fate(server: Server, data: bytes, rng: random.Random) -> list[int]:
    """Statuses of all answers, until the server closes, which a last good request asks for."""
    with server.connect(limit_s=1) as connection:
        received = b""
        try:
            if rng.random() < 0.2:
                half = rng.randrange(len(data) + 1)
                connection.sendall(data[:half])
                data = data[half:]
            connection.sendall(data + LAST)
            try:
                while piece := connection.recv(1 << 16):
                    received += piece
            except TimeoutError:  # a body may have been so long that it took the last request in
                connection.settimeout(10)
                connection.sendall(LAST)
                while piece := connection.recv(1 << 16):
                    received += piece
        except ConnectionError:  # a closed connection is an answer too
            return []
    found = cut(received)
    for reply in found:
        assert reply.status in STATUSES, (data, reply)
        if reply.status >= 400:
            assert reply.error, data
    return [reply.status for reply in found]


def memory_kb(server: Server) -> int:
    [worker] = server.workers
    [line] = [each for each in Path(f"/proc/{worker}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1])


def test_broken_requests_are_answered_or_closed_and_leave_nothing_behind(server: Server) -> None:
    rng, good = random.Random(SEED), seeds()
    before_workers = server.workers
    for data in good:
        assert fate(server, data, rng) == [200 if b"NUMPY" not in data else 400, 200]
    statuses: list[int] = []
    until, sent, warm_kb = time.monotonic() + LONGEST_S, 0, 0
    while time.monotonic() < until and sent < 3000:
        statuses += fate(server, broken(rng, good), rng)
        sent += 1
        if sent == 300:
            warm_kb = memory_kb(server)
    assert sent > 300, "too few to say anything"
    assert {200, 400} < set(statuses)
    assert server.workers == before_workers
    if warm_kb:
        assert memory_kb(server) - warm_kb < MOST_GROWTH_KB
    assert server.post(INFER, bytes(64), RAW).status == 200
    said = server.said()
    assert "Traceback" not in said
    assert "internal error" not in said


def test_good_requests_leave_no_memory_behind(server: Server) -> None:
    body = request("POST", INFER, bytes(64), "Inference-Header-Content-Length: 0") * 100 + LAST

    def send(rounds: int) -> None:
        for _ in range(rounds):
            with server.connect() as connection:
                connection.sendall(body)
                received = b""
                while piece := connection.recv(1 << 16):
                    received += piece
            assert received.count(b"HTTP/1.1 200") == 101

    send(10)
    warm_kb = memory_kb(server)
    send(40)
    assert memory_kb(server) - warm_kb < MOST_GROWTH_KB
