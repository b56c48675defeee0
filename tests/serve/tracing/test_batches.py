"""Requests that ran in one call of the model: each has its own span of it, with links to all that were in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.conftest import samples as images
from tests.serve.grpc_server import Client, Server, request
from tests.serve.server import INFER, RAW, ask
from tests.serve.tracing.collector import Collector, Span, collecting

pytestmark = pytest.mark.processes

X = images(4)
UNTRACED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}


@pytest.fixture(scope="module")
def joining(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Collector]]:
    """A server that has on record half a second a call, and waits a second for a batch to fill."""
    home = tmp_path_factory.mktemp("home")
    [path] = folder.glob("*openvino*")
    Server.start(home, "--drain-s", 0, path).stop()
    [record] = (home / "edgerun").glob("curve-*.json")
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({**kept, "ms": {"1": 500.0, "3": 510.0}}))
    with collecting() as collector:
        traces = ("--trace-to", collector.url, "--trace-share", 1)
        server = Server.start(home, "--drain-s", 0, "--queue-delay-ms", 1000, *traces, path)
        yield server, collector
        server.stop()
        assert "Traceback" not in server.log_text(), server.log_text()


def together(server: Server, headers: list[dict[str, str]]) -> None:
    """A request for each of these headers, at once."""

    def one(more: dict[str, str]) -> None:
        assert ask(server.http.removeprefix("http://"), "POST", INFER, X[:1].tobytes(), {**RAW, **more}).status == 200

    threads = [threading.Thread(target=one, args=(more,)) for more in headers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def part(collector: Collector, of: Span, name: str) -> Span:
    [found] = [span for span in collector.children(of) if span.name == name]
    return found


def test_the_call_of_a_batch_is_linked_to_all_requests_in_it(joining: tuple[Server, Collector]) -> None:
    server, collector = joining
    collector.spans.clear()
    together(server, [{}, {}, {}])
    found = collector.wait(3)
    calls = [part(collector, span, "execute") for span in found]
    begins = [call.began for call in calls]
    assert max(begins) - min(begins) < 1_000_000  # one call; each request reads the time of day once for itself
    assert all(call.attributes == {"edgekit.batch.size": 3} for call in calls)
    assert all(call.links == {(span.trace, span.id) for span in found} for call in calls)
    waited = [part(collector, span, "queue") for span in found]
    assert all(wait.ended == call.began for wait, call in zip(waited, calls, strict=True))
    assert all(wait.ended > wait.began for wait in waited)


def test_a_request_that_is_not_traced_has_no_link(joining: tuple[Server, Collector]) -> None:
    server, collector = joining
    collector.spans.clear()
    together(server, [{}, UNTRACED, {}])
    found = collector.wait(2)
    calls = [part(collector, span, "execute") for span in found]
    assert all(call.attributes == {"edgekit.batch.size": 3} for call in calls)
    assert all(call.links == {(span.trace, span.id) for span in found} for call in calls)


def test_a_request_of_many_samples_alone_has_no_links(joining: tuple[Server, Collector]) -> None:
    server, collector = joining
    collector.spans.clear()
    Client(server.grpc).infer(request("tiny", X))
    [span] = collector.wait()
    call = part(collector, span, "execute")
    assert (call.attributes, call.links) == ({"edgekit.batch.size": 4}, set())


def test_a_client_that_hangs_up_in_the_queue_is_traced_and_leaves_nothing_behind(
    joining: tuple[Server, Collector],
) -> None:
    server, collector = joining
    collector.spans.clear()
    call = Client(server.grpc).method("ModelInfer").future(request("tiny", X[:1]))
    threading.Event().wait(0.3)
    call.cancel()
    [span] = collector.wait()
    assert span.attributes["rpc.response.status_code"] == "CANCELLED"
    assert [each.name for each in collector.children(span)][-1] == "queue"
    assert part(collector, span, "queue").attributes == {"error.type": "CancelledError"}
