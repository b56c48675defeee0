"""More requests at once than can be answered in time: the first are answered, the rest refused, none is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.runner.conftest import samples
from tests.serve.conftest import Start
from tests.serve.server import INFER, Reply, Server, next_reply, replies

pytestmark = pytest.mark.processes

REQUESTS = 500
PATIENCE_MS = 20
"""In which no server can answer so many."""
ALIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
DEADLINE = f"X-Request-Timeout-Ms: {PATIENCE_MS}"


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path]) -> Server:
    return start(bundles["onnx"])


def request(*headers: str, path: str = INFER) -> bytes:
    """A raw sample."""
    body = samples(1)[0].tobytes()
    raw = "Inference-Header-Content-Length: 0"
    lines = [f"POST {path} HTTP/1.1", "Host: x", raw, f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def held_up(server: Server) -> Iterator[None]:
    """The worker stands still, and finds all that was sent when it goes on."""
    [worker] = server.workers
    time.sleep(0.1)  # at rest: what comes during a round that is held up would rightly be late
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
        time.sleep(0.05)
    finally:
        os.kill(worker, signal.SIGCONT)


def burst(server: Server, requests: Sequence[bytes], then: bytes = b"") -> list[Reply]:
    """Answers to requests that are there at once, on a connection each; with `then`, each gets that one as well."""
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in requests]
        for connection in connections:  # accepted, or this would be a burst of connections
            connection.sendall(ALIVE)
            assert next_reply(connection).status == 200
        with held_up(server):
            for connection, content in zip(connections, requests):
                connection.sendall(content)
        found = [final(connection) for connection in connections]
        if then:
            for connection in connections:
                connection.sendall(then)
            assert {next_reply(connection).status for connection in connections} == {200}
    return found


def final(connection: socket.socket) -> Reply:
    """The answer behind all that only says to go on."""
    while (reply := next_reply(connection)).status == 100:
        pass
    return reply


def counted(server: Server) -> tuple[int, int]:
    """Answered and refused, by the server's own statistics."""
    [stats] = server.get("/v2/models/tiny/stats").json()["model_stats"]
    return stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]


def test_of_a_burst_the_first_are_answered_and_the_rest_are_refused(server: Server) -> None:
    before = counted(server)
    found = burst(server, [request(DEADLINE)] * REQUESTS, then=request())
    good, refused = [each for each in found if each.status == 200], [each for each in found if each.status == 503]
    assert len(good) + len(refused) == REQUESTS
    assert good and refused
    assert len({each.body for each in good}) == 1, "one sample, one answer"
    for each in refused:
        assert "deadline" in each.error
        assert int(each.headers["retry-after"]) >= 1
        assert each.headers["content-type"] == "application/json"
        assert "date" in each.headers and "connection" not in each.headers
    after = counted(server)
    assert (after[0] - before[0], after[1] - before[1]) == (len(good) + REQUESTS, len(refused))


def test_who_sets_no_deadline_is_answered_behind_all_others(server: Server) -> None:
    found = burst(server, [request(DEADLINE), request()] * (REQUESTS // 2))
    assert {each.status for each in found[1::2]} == {200}


def test_errors_of_a_request_are_reported_under_overload_too(server: Server) -> None:
    odd = [
        (request(DEADLINE, path="/v2/models/nobody/infer"), {404}),
        (request(DEADLINE, path="/v2/models/tiny/versions/7/infer"), {404}),
        (request(DEADLINE, path="/v2/models/infer"), {404}),
        (request(DEADLINE, path="/v2/models/tiny/of/no/kind/infer"), {404}),
        (request("X-Request-Timeout-Ms: soon"), {400}),
        (request(DEADLINE).replace(b"POST", b"PUT", 1), {405}),
        (request(DEADLINE, "Expect: 100-continue"), {200, 503}),
        (request(DEADLINE, "Connection: close"), {200, 503}),
    ]
    found = burst(server, [*[request(DEADLINE)] * REQUESTS, *(content for content, _ in odd)])[REQUESTS:]
    assert [reply.status for reply, (_, right) in zip(found, odd) if reply.status not in right] == []


def test_a_server_with_tokens_reveals_nothing_of_its_load_to_a_stranger(
    start: Start, bundles: dict[str, Path], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-the-test\n")
    tokens.chmod(0o600)
    server = start(bundles["onnx"], "--token-file", tokens)
    assert {each.status for each in burst(server, [request(DEADLINE)] * REQUESTS)} == {401}


def test_a_servers_own_deadline_holds_for_those_that_set_none(start: Start, bundles: dict[str, Path]) -> None:
    server = start(bundles["onnx"], "--deadline-ms", PATIENCE_MS)
    assert {each.status for each in burst(server, [request()] * REQUESTS)} == {200, 503}
    assert {each.status for each in burst(server, [request("X-Request-Timeout-Ms: 60000")] * REQUESTS)} == {200}
    tensor = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": [7] * 64}
    patient = json.dumps({"inputs": [tensor], "parameters": {"timeout": 60_000_000}}).encode()
    whole = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (INFER.encode(), len(patient), patient)
    assert {each.status for each in burst(server, [whole] * REQUESTS)} == {200}


def test_a_server_that_stops_closes_behind_a_refusal(start: Start, bundles: dict[str, Path]) -> None:
    """Half of the burst lacks its last byte, so those that are refused by their headers wait for it."""
    server = start(bundles["onnx"], "--drain-s", 1)
    content = request(DEADLINE)
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(2 * REQUESTS)]
        for connection in connections:
            connection.sendall(ALIVE)
            assert next_reply(connection).status == 200
        whole, halves = connections[:REQUESTS], connections[REQUESTS:]
        with held_up(server):
            for connection in whole:
                connection.sendall(content)
            for connection in halves:
                connection.sendall(content[:-1])
        refused = [final(connection).status for connection in whole].count(503)
        assert counted(server)[1] > refused, "no half was refused by its headers"
        begun = time.monotonic()
        server.ask_to_end()
        time.sleep(0.3)
        for connection in halves:
            connection.sendall(content[-1:])
        found = [replies(connection)[-1] for connection in halves]
        assert 503 in {each.status for each in found}
        assert {each.status for each in found} <= {200, 503}
        assert {each.headers.get("connection") for each in found} == {"close"}
        assert server.wait() == 0
    assert time.monotonic() - begun < 25, "it waited for connections that nobody needs"
