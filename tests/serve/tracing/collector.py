"""A collector of OpenTelemetry on a free port: it takes OTLP/HTTP, and gives the spans as they came over the wire."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SERVER, CLIENT, INTERNAL = 2, 3, 1
"""Kinds of spans, by OTLP."""
ERROR = 2
"""A status, by OTLP."""
WAIT_S = 30.0


class Span:
    """One that arrived, with the resource that sent it."""

    def __init__(self, span: Any, resource: dict[str, Any], scope: str) -> None:
        self.name, self.kind, self.resource, self.scope = span.name, span.kind, resource, scope
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.began, self.ended = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = plain(span.attributes)
        self.links = {(link.trace_id.hex(), link.span_id.hex()) for link in span.links}
        self.status, self.message, self.state = span.status.code, span.status.message, span.trace_state


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as values of Python."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}


class Collector:
    """What came so far; `status` is its answer, `paths` are those of the requests."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.paths: list[str] = []
        self.status, self.headers, self.body = 200, {}, ExportTraceServiceResponse().SerializeToString()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        """One request's body."""
        self.paths.append(path)
        if self.status != 200:
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            facts = plain(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [Span(each, facts, scope.scope.name) for each in scope.spans]

    def requests(self) -> list[Span]:
        """Spans of requests alone."""
        return [span for span in list(self.spans) if span.kind == SERVER]

    def wait(self, count: int = 1) -> list[Span]:
        """So many requests' spans, in the order in which they began."""
        self.until(lambda: len(self.requests()) >= count)
        return sorted(self.requests(), key=lambda span: span.began)

    def until(self, is_so: Callable[[], bool]) -> None:
        """AssertionError after `WAIT_S`."""
        end = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end, [span.name for span in self.spans]
            time.sleep(0.02)

    def children(self, of: Span) -> list[Span]:
        """In the order in which they began, ended where that is the same."""
        found = [span for span in list(self.spans) if span.parent == of.id and span.trace == of.trace]
        return sorted(found, key=lambda span: (span.began, span.ended))


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector that runs."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, body)
            self.send_response(collector.status)
            for name, value in collector.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(collector.body)))
            self.end_headers()
            self.wfile.write(collector.body)

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    class Httpd(ThreadingHTTPServer):
        allow_reuse_address = daemon_threads = True

    httpd = Httpd(("127.0.0.1", port), Handler)
    collector.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        httpd.shutdown()
        httpd.server_close()


@contextmanager
def answering_port(reply: bytes, is_endless: bool = False) -> Iterator[tuple[str, list[int]]]:
    """A port that accepts, and answers `says` to whoever connects, again and again where it is endless; its URL.

    The list has a number for each connection that was made.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    connections: list[int] = []
    kept: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        try:
            connection.sendall(reply)
            while is_endless:
                connection.sendall(b"x" * 65536)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connections.append(1)
            kept.append(connection)
            if reply:
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
    finally:
        listening.close()
        for connection in kept:
            connection.close()
