"""The spans of gRPC's calls, from a real server at a real collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.runner.conftest import samples as images
from tests.serve.grpc_server import Client, Server, outputs, request
from tests.serve.tracing.collector import ERROR, SERVER, Collector, collecting

pytestmark = pytest.mark.processes

X = images(1)
METHOD = "inference.GRPCInferenceService/ModelInfer"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def running(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Collector]]:
    [path] = folder.glob("*onnx*")
    with collecting() as collector:
        traces = ("--trace-to", collector.url, "--trace-share", 1)
        server = Server.start(tmp_path_factory.mktemp("home"), "--drain-s", 0, *traces, path)
        yield Client(server.grpc), collector
        server.stop()
        assert "Traceback" not in server.log_text(), server.log_text()
        assert "internal error" not in server.log_text(), server.log_text()


def test_a_call_goes_on_with_its_client_s_trace(running: tuple[Client, Collector]) -> None:
    client, collector = running
    metadata = (("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "vendor=a1"))
    assert outputs(client.infer(request("tiny", X), metadata=metadata))["output"].shape == (1, 3)
    [span] = collector.wait()
    assert (span.name, span.kind) == (METHOD, SERVER)
    assert (span.trace, span.parent, span.state) == (TRACE, PARENT, "vendor=a1")
    assert span.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": METHOD,
        "rpc.response.status_code": "OK",
        "edgekit.model": "tiny",
        "edgekit.version": "1.2.0",
        "edgekit.interpreter": "onnxruntime",
    }
    names = [part.name for part in collector.children(span)]
    assert names == ["decode", "preprocess", "queue", "execute", "postprocess", "serialise"]
    collector.spans.clear()


@pytest.mark.parametrize(
    ("model", "timeout_ms", "code", "is_error"), [("none", 0, "NOT_FOUND", False), ("tiny", 1e-4, "UNAVAILABLE", True)]
)
def test_a_refusal_has_its_code_and_only_the_server_s_own_is_an_error(
    model: str, timeout_ms: float, code: str, is_error: bool, running: tuple[Client, Collector]
) -> None:
    client, collector = running
    metadata = (("x-request-timeout-ms", str(timeout_ms)),) if timeout_ms else ()
    with pytest.raises(grpc.RpcError) as caught:
        client.infer(request(model, X), metadata=metadata)
    assert caught.value.code().name == code
    [span] = collector.wait()
    assert span.attributes["rpc.response.status_code"] == code
    assert (span.status == ERROR) == is_error
    assert span.message == (caught.value.details() if is_error else "")
    collector.spans.clear()


def test_a_call_without_a_parent_begins_a_trace_and_an_untraced_one_has_none(running: tuple[Client, Collector]) -> None:
    client, collector = running
    client.infer(request("tiny", X), metadata=(("traceparent", f"00-{TRACE}-{PARENT}-00"),))
    client.call("ModelMetadata", name="tiny")
    client.infer(request("tiny", X))
    [span] = collector.wait()
    assert (span.parent, span.trace == TRACE) == ("", False)
    collector.spans.clear()
