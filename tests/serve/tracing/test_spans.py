"""Real servers whose spans arrive at a real collector: their names, parents, order, times and attributes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit import __version__
from tests.runner.conftest import samples as images
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server
from tests.serve.tracing.collector import ERROR, INTERNAL, SERVER, Collector, Span, collecting

pytestmark = pytest.mark.processes

X = images(3)
ONE = X[:1].tobytes()
PARTS = ["decode", "preprocess", "queue", "execute", "postprocess", "serialise"]
BODY = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": X.shape, "data": X.ravel().tolist()}]}


def bundle_in(folder: Path) -> Path:
    """The one for ONNX Runtime, served as `tiny`."""
    return next(folder.glob("*onnx*"))


@pytest.fixture(scope="module")
def running(start: Start, folder: Path) -> Iterator[tuple[Server, Collector]]:
    """A server that traces all, and its collector."""
    with collecting() as collector:
        yield start(bundle_in(folder), "--trace-to", collector.url, "--trace-share", "1"), collector


@pytest.fixture
def server(running: tuple[Server, Collector]) -> Server:
    return running[0]


@pytest.fixture
def collector(running: tuple[Server, Collector]) -> Collector:
    """Without the spans of the tests before."""
    running[1].spans.clear()  # every test has waited for its own
    return running[1]


def only_request(collector: Collector) -> tuple[Span, list[Span]]:
    """The only request's span, and its parts."""
    [request] = collector.wait()
    return request, collector.children(request)


def test_a_request_has_one_span_and_its_parts_in_their_order(server: Server, collector: Collector) -> None:
    before = time.time_ns()
    assert server.post(INFER, BODY).status == 200
    request, parts = only_request(collector)
    assert [part.name for part in parts] == PARTS
    assert request.kind == SERVER
    assert {part.kind for part in parts} == {INTERNAL}
    assert request.parent == ""
    assert before <= request.began <= parts[0].began
    assert all(one.began <= one.ended <= two.began for one, two in zip(parts, parts[1:], strict=False))
    assert parts[-1].ended <= request.ended <= time.time_ns()
    assert len({span.id for span in collector.spans}) == len(PARTS) + 1


def test_the_span_says_by_the_conventions_what_was_asked(server: Server, collector: Collector) -> None:
    server.ask("POST", INFER, ONE, RAW)
    request, parts = only_request(collector)
    assert request.name == "POST /v2/models/{model}/infer"
    interpreter = request.attributes.pop("edgekit.interpreter")
    assert interpreter == "onnxruntime"
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v2/models/{model}/infer",
        "http.response.status_code": 200,
        "http.request.body.size": len(ONE),
        "url.path": INFER,
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "server.address": "127.0.0.1",
        "server.port": server.port,
        "edgekit.model": "tiny",
        "edgekit.version": "1.2.0",
    }
    assert parts[3].attributes == {"edgekit.batch.size": 1}
    assert request.status == 0


def test_the_resource_is_the_server_and_nothing_of_the_machine(server: Server, collector: Collector) -> None:
    server.ask("POST", INFER, ONE, RAW)
    request, parts = only_request(collector)
    facts = request.resource
    assert (facts["service.name"], facts["service.version"]) == ("edgekit", __version__)
    assert {key.partition(".")[0] for key in facts} == {"service", "telemetry"}
    assert {part.resource["service.instance.id"] for part in parts} == {facts["service.instance.id"]}
    assert request.scope == "edgekit.serve"
    assert set(collector.paths) == {"/v1/traces"}


def test_an_answer_names_its_trace(server: Server, collector: Collector) -> None:
    reply = server.ask("POST", INFER, ONE, RAW)
    request, _ = only_request(collector)
    assert reply.headers["server-timing"] == f'traceparent;desc="00-{request.trace}-{request.id}-01"'


def test_requests_on_one_connection_have_traces_of_their_own(server: Server, collector: Collector) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nhost: a\r\ninference-header-content-length: 0\r\ncontent-length: {len(ONE)}\r\n"
    with server.connect() as connection:
        connection.sendall((head.encode() + b"\r\n" + ONE) * 3)
        found = collector.wait(3)
    assert len({span.trace for span in found}) == 3
    assert all([part.name for part in collector.children(span)] == PARTS for span in found)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (INFER, b"{", 400, "invalid"),
        (INFER, b"x" * 7, 400, "invalid"),
        ("/v2/models/none/infer", b"", 404, "not_found"),
        ("/predict", b"no picture", 415, "unsupported"),
    ],
)
def test_a_client_s_mistake_is_no_error_of_the_server(
    path: str, body: bytes, status: int, reason: str, server: Server, collector: Collector
) -> None:
    assert server.ask("POST", path, body).status == status
    request, _ = only_request(collector)
    assert request.attributes["http.response.status_code"] == status
    assert request.attributes["edgekit.refused"] == reason
    assert request.status == 0
    assert "error.type" not in request.attributes


def test_a_refusal_under_load_is_an_error_with_its_reason(server: Server, collector: Collector) -> None:
    reply = server.ask("POST", INFER, ONE, {**RAW, "X-Request-Timeout-Ms": "0.0001"})
    assert reply.status == 503
    request, parts = only_request(collector)
    assert (request.status, request.message) == (ERROR, reply.error)
    assert (request.attributes["error.type"], request.attributes["edgekit.refused"]) == ("503", "late")
    assert parts == [] or parts[-1].status == ERROR


def test_a_file_s_windows_have_their_parts_one_after_the_other(start: Start, kinds: Path, collector: Collector) -> None:
    """At most 64 of them: a recording may have any number of windows."""
    traces = ("--trace-to", collector.url, "--trace-share", "1")
    server = start(kinds / "table.edge.zip", *traces, "--no-batch")

    def rows(count: int) -> bytes:
        return "\n".join(["ax,ay,az", *["0.1,0.2,0.3"] * count]).encode()

    assert server.ask("POST", "/predict", rows(8)).status == 200
    request, parts = only_request(collector)
    assert request.name == "POST /predict"
    window = ["preprocess", "queue", "execute", "postprocess"]
    assert [part.name for part in parts] == ["decode", *window, *window, "serialise"]
    assert all(one.ended <= two.began for one, two in zip(parts, parts[1:], strict=False))
    collector.spans.clear()
    assert server.ask("POST", "/predict", rows(4 * 100)).status == 200
    request, parts = only_request(collector)
    assert len(parts) == 64
    assert request.attributes["edgekit.parts_left_out"] == 1 + 4 * 100 + 1 - 64


def test_a_remembered_answer_asks_no_model(start: Start, folder: Path, collector: Collector) -> None:
    server = start(bundle_in(folder), "--trace-to", collector.url, "--trace-share", "1", "--cache-mb", "1")
    for _ in range(2):
        assert server.ask("POST", INFER, ONE, RAW).status == 200
    first, second = collector.wait(2)
    assert [part.name for part in collector.children(first)] == PARTS
    parts = collector.children(second)
    assert [part.name for part in parts] == ["decode", "cache", "postprocess", "serialise"]
    assert parts[1].attributes == {"edgekit.cache.hit": True}


def test_health_is_never_traced_and_the_rest_is(server: Server, collector: Collector) -> None:
    server.get("/v2/health/ready")
    server.get("/v2/models/tiny")
    server.ask("PROPFIND", "/")
    got, found = collector.wait(2)
    assert [got.name, found.name] == ["GET", "HTTP"]
    assert found.attributes["http.request.method"] == "_OTHER"


def test_no_byte_of_a_sample_and_no_token_is_sent(start: Start, folder: Path, collector: Collector) -> None:
    token, sample = "s3cret-token-0123456789", np.full_like(X[:1], 113).tobytes()
    file = folder.parent / "tokens.txt"
    file.write_text(token + "\n")
    file.chmod(0o600)
    server = start(bundle_in(folder), "--trace-to", collector.url, "--trace-share", "1", "--token-file", file)
    headers = {**RAW, "Authorization": f"Bearer {token}"}
    assert server.ask("POST", f"{INFER}?key=hidden", sample, headers).status == 200
    only_request(collector)
    sent = repr([(span.name, span.attributes, span.message, span.resource) for span in collector.spans])
    assert not [secret for secret in (token, "qqqq", "hidden") if secret in sent]


def test_an_answer_is_the_same_to_the_bit(start: Start, server: Server, collector: Collector, folder: Path) -> None:
    plain = start(bundle_in(folder))
    assert plain.ask("POST", INFER, ONE, RAW).body == server.ask("POST", INFER, ONE, RAW).body
    only_request(collector)
