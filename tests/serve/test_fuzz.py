"""Requests with seeded faults: answers in JSON or a closed connection, no traceback, no hang, no growth."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.serve import several
from tests.serve.conftest import Start
from tests.serve.fuzz import LAST, broken, fate, request, seeds
from tests.serve.server import INFER, RAW, Server
from tests.serve.test_predict import BAD

pytestmark = pytest.mark.processes

SEED = 20
LONGEST_S = 12.0
MOST_GROWTH_KB = 6 << 10


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Server:
    two = several.write("onnx", tmp_path_factory.mktemp("several"))
    return start(bundles["onnx"], two, "--receive-s", 0.1, "--max-body-mb", 1)


def memory_kb(server: Server) -> int:
    [worker] = server.workers
    [line] = [each for each in Path(f"/proc/{worker}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1])


def test_broken_requests_are_answered_or_closed_and_leave_nothing_behind(server: Server) -> None:
    rng, good = random.Random(SEED), seeds()
    before_workers = server.workers
    for data in good:
        assert fate(server.connect, data, rng) == [400 if data.endswith(BAD["npy, another shape"]) else 200, 200]
    statuses: list[int] = []
    until, sent, warm_kb = time.monotonic() + LONGEST_S, 0, 0
    while time.monotonic() < until and sent < 3000:
        statuses += fate(server.connect, broken(rng, good), rng)
        sent += 1
        if sent == 300:
            warm_kb = memory_kb(server)
    assert sent > 300, "too few to say anything"
    assert {200, 400} < set(statuses)
    assert server.workers == before_workers
    if warm_kb:
        assert memory_kb(server) - warm_kb < MOST_GROWTH_KB
    assert server.post(INFER, bytes(64), RAW).status == 200
    log = server.log_text()
    assert "Traceback" not in log
    assert "internal error" not in log


@pytest.mark.parametrize("swallowed", [1, 2, 3])
def test_a_body_that_takes_in_last_requests_and_leaves_an_empty_line_is_no_hang(
    swallowed: int, start: Start, bundles: dict[str, Path]
) -> None:
    """The client must go on asking: the server has answered, and waits for a next request."""
    body = b"{"
    length = len(body) + swallowed * len(LAST) - 2
    data = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + body
    assert fate(start(bundles["onnx"]).connect, data, random.Random(0)) == [400, 200]


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
