"""A request that grants more time than the server's own deadline gets it, however busy the server is."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.runner.conftest import samples
from tests.serve.cached import slow
from tests.serve.conftest import Start
from tests.serve.server import RAW, Reply, Server, send_request

pytestmark = pytest.mark.processes

INFER = "/v2/models/slow/infer"
DEFAULT_MS, OWN_MS = 25, 60_000.0
BUSY = 12
"""Clients that ask without pause and name no deadline: more than can be answered in time."""
PATIENT, QUESTIONS = 4, 15
SAMPLE = samples(1)[0]
TENSOR = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8"}


def in_json(connection: http.client.HTTPConnection, own_ms: float) -> Reply:
    tensor = {**TENSOR, "data": SAMPLE.ravel().tolist()}
    body = json.dumps({"inputs": [tensor], "parameters": {"timeout": int(own_ms * 1000)}}).encode()
    return send_request(connection, "POST", INFER, body)


def in_binary(connection: http.client.HTTPConnection, own_ms: float) -> Reply:
    tensor = {**TENSOR, "parameters": {"binary_data_size": SAMPLE.size}}
    head = json.dumps({"inputs": [tensor], "parameters": {"timeout": int(own_ms * 1000)}}).encode()
    return send_request(
        connection, "POST", INFER, head + SAMPLE.tobytes(), {"Inference-Header-Content-Length": str(len(head))}
    )


def in_header(connection: http.client.HTTPConnection, own_ms: float) -> Reply:
    headers = {**RAW, "X-Request-Timeout-Ms": str(own_ms)}
    return send_request(connection, "POST", INFER, SAMPLE.tobytes(), headers)


WAYS = {"parameter": in_json, "parameter, binary": in_binary, "header": in_header}


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Milliseconds a call, one worker."""
    return start(slow(tmp_path_factory.mktemp("slow")), "--deadline-ms", DEFAULT_MS)


@pytest.fixture
def refused(server: Server) -> Iterator[Counter[int]]:
    """Statuses of clients that keep the server busy meanwhile; the server's own deadline is theirs."""
    seen: Counter[int] = Counter()
    stop = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(server.url, timeout=60)
        while not stop.is_set():
            seen[send_request(connection, "POST", INFER, SAMPLE.tobytes(), RAW).status] += 1
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(BUSY)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while seen[503] < 20:
        assert time.monotonic() < until, f"it is not busy: {seen}"
        time.sleep(0.01)
    yield seen
    stop.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("way", WAYS)
def test_who_grants_more_is_not_refused_on_the_servers_own_deadlines_account(
    way: str, server: Server, refused: Counter[int]
) -> None:
    before = refused[503]

    def ask(_: int) -> list[Reply]:
        connection = http.client.HTTPConnection(server.url, timeout=60)
        try:
            return [WAYS[way](connection, OWN_MS) for _ in range(QUESTIONS)]
        finally:
            connection.close()

    with ThreadPoolExecutor(PATIENT) as pool:
        found = [reply for each in pool.map(ask, range(PATIENT)) for reply in each]
    assert Counter(reply.status for reply in found) == {200: PATIENT * QUESTIONS}
    assert refused[503] > before, "others were refused meanwhile"


@pytest.mark.parametrize("way", WAYS)
def test_who_grants_less_is_refused_though_the_server_would_grant_more(way: str, server: Server) -> None:
    connection = http.client.HTTPConnection(server.url, timeout=60)
    try:
        assert WAYS[way](connection, OWN_MS).status == 200
        reply = WAYS[way](connection, 0.01)
    finally:
        connection.close()
    assert reply.status == 503, reply
    assert "deadline" in reply.error
