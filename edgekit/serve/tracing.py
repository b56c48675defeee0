"""OpenTelemetry spans for `serve --trace-to`: a tracer, an ASGI middleware, and the export to the collector.

This module is imported only with that option. OpenTelemetry's own middleware (`opentelemetry-instrumentation-asgi`) is
not used for two reasons: it costs every request 34 µs, whereas this one costs 0.7 µs if a request is not traced; and it
would send the query and the client's address to the collector.

Answers never wait for the collector. At most `QUEUE` spans are held, and further ones are dropped and counted. An
export ends after `EXPORT_S`, and the process exits `STOP_S` after it was asked to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import getrandbits
from threading import Thread
from time import monotonic, perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from edgekit import __version__
from edgekit.device.commands.serve import Settings
from edgekit.serve.app import ROUTES, App
from edgekit.serve.errors import ClientDisconnected, Reason, RequestError, late_error, printable
from edgekit.serve.log import log
from edgekit.serve.timeline import CURRENT, Part, Timeline, error_type

Pairs = Iterable[tuple[object, object]]

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"))
MAX_PATH_LENGTH = 256
RANDOM_FLAG = 0x02
"""The random flag of the W3C's Trace Context level 2. Every span in a trace passes it on to its children."""
INFERENCE_HANDLERS = (App.infer, App.predict)
GRPC_FAULTS = frozenset(("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"))
"""gRPC codes that are errors of the server. The others are errors of its clients."""
QUEUE, BATCH = 2048, 128
EXPORT_S, STOP_S = 5.0, 3.0
LOG_INTERVAL_S = 600.0
"""Minimum time between two log lines about failures, so that an unstable collector does not fill the disk."""
SWITCH_S = 5e-4
"""Python's switch interval. After this time, the thread that encodes spans yields to the event loop. Python's default
is 5 ms."""
MAX_REPLY_BYTES = 4096
SILENT = ("opentelemetry", "urllib3", "requests")
"""Loggers that would write a line for each invalid header of a client and for each dropped span."""


class Sampler:
    """Decides once per request whether to trace it.

    Of the requests without a parent span, the fraction `share` is traced. A request with a parent span is traced if its
    parent is.
    """

    def __init__(self, share: float) -> None:
        self._root = TraceIdRatioBased(share)
        self._sampler = ParentBased(self._root)

    def begin(self, headers: Pairs) -> tuple[SpanContext, SpanContext | None] | None:
        """Return the contexts of the request's span and of its parent; None if the request is not traced."""
        parents, states = [], []
        for name, value in headers:
            if name == b"traceparent" or name == "traceparent":
                parents.append(value)
            elif name == b"tracestate" or name == "tracestate":
                states.append(value)
        if len(parents) == 1:  # two parents are ignored, as in the W3C's test suite
            context = _extract_context(_text(parents[0]), [_text(state) for state in states])
            parent = get_current_span(context).get_span_context()
            if parent.is_valid:
                return self._child(context, parent)
        trace_id = getrandbits(128)
        if trace_id & self._root.TRACE_ID_LIMIT >= self._root.bound:  # the rule of TraceIdRatioBased, but faster
            return None
        return SpanContext(trace_id or 1, _new_span_id(), False, TraceFlags(TraceFlags.SAMPLED)), None

    def _child(self, context: Context, parent: SpanContext) -> tuple[SpanContext, SpanContext] | None:
        result = self._sampler.should_sample(context, parent.trace_id, "")
        if not result.decision.is_sampled():
            return None
        flags = TraceFlags(TraceFlags.SAMPLED | parent.trace_flags & RANDOM_FLAG)
        return SpanContext(parent.trace_id, _new_span_id(), False, flags, result.trace_state), parent


class TracedRequest(Timeline):
    """A traced request: the timeline of its parts, and the name and parent of its span."""

    def __init__(self, context: SpanContext, parent: SpanContext | None, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(context, attributes)
        self.parent, self.name = parent, name


class Tracer:
    """Begins and ends the traced requests of one worker, and queues their spans for the collector."""

    def __init__(self, settings: Settings) -> None:
        self._scheme = "https" if settings.certificate else "http"
        self._sampling = Sampler(settings.trace_share)
        self._queue = SpanQueue(settings.trace_to)
        self._resource = resource()
        self._scope = InstrumentationScope("edgekit.serve", __version__)

    def http(self, scope: dict[str, Any]) -> TracedRequest | None:
        """Begin to trace an HTTP request. Returns None if it is not traced, as health checks never are."""
        contexts = self._sampling.begin(scope["headers"])
        if contexts is None or scope["path"].startswith("/v2/health/"):
            return None
        method, path = scope["method"], scope["path"]
        is_known_method, route = method in METHODS, _route(path)
        attributes = {
            "http.request.method": method if is_known_method else "_OTHER",
            "url.path": printable(path[:MAX_PATH_LENGTH]),
            "url.scheme": scope["scheme"],
            "network.protocol.version": scope["http_version"],
        }
        if route:
            attributes["http.route"] = route
        if scope.get("server"):
            attributes["server.address"], attributes["server.port"] = scope["server"][:2]
        name = method if is_known_method else "HTTP"
        return TracedRequest(*contexts, f"{name} {route}" if route else name, attributes)

    def http_ended(self, request: TracedRequest, status: int) -> None:
        """End the trace of an HTTP request. `status` is 0 if the client disconnected."""
        if status:
            request.attributes["http.response.status_code"] = status
        self._end(request, str(status) if status >= 500 else "" if status else "cancelled")

    def refused_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Trace a POST that was refused as late once its headers had been read. Its span has no children."""
        path = url.decode("latin-1").partition("?")[0]
        scope = {"method": "POST", "path": path, "headers": headers, "scheme": self._scheme, "http_version": "1.1"}
        request = self.http(scope)
        if request is not None:
            request.error = late_error(0)
            self.http_ended(request, 503)

    def grpc(self, name: str, metadata: Pairs) -> TracedRequest | None:
        """Begin to trace a gRPC call. Returns None if it is not traced."""
        contexts = self._sampling.begin(metadata)
        return (
            None
            if contexts is None
            else TracedRequest(*contexts, name, {"rpc.system.name": "grpc", "rpc.method": name})
        )

    def grpc_ended(self, request: TracedRequest, code: str) -> None:
        """End the trace of a gRPC call. `code` is the name of its status code."""
        request.attributes["rpc.response.status_code"] = code
        self._end(request, code if code in GRPC_FAULTS else "")

    async def stop(self) -> None:
        """Send the remaining spans."""
        await self._queue.stop()

    def _end(self, request: TracedRequest, fault: str) -> None:
        error, status = request.error, Status(StatusCode.UNSET)
        if isinstance(error, RequestError):
            request.attributes["edgekit.refused"] = error.reason.value
        elif isinstance(error, ClientDisconnected):
            request.attributes["edgekit.refused"] = Reason.CANCELLED.value
        if request.dropped_parts:
            request.attributes["edgekit.parts_left_out"] = request.dropped_parts
        if fault:
            is_unexpected = isinstance(error, Exception) and not isinstance(error, (RequestError, ClientDisconnected))
            request.attributes["error.type"] = error_type(error) if error and is_unexpected else fault
            status = Status(StatusCode.ERROR, error.text if isinstance(error, RequestError) else None)
        spans = [self._child(request, part) for part in request.parts]
        times = (request.began_ns + request.wall_offset_ns, perf_counter_ns() + request.wall_offset_ns)
        spans.append(
            self._span(
                request.name, request.context, request.parent, request.attributes, times, status, SpanKind.SERVER
            )
        )
        self._queue.put(spans)

    def _child(self, request: TracedRequest, part: Part) -> ReadableSpan:
        parent_context, attributes, status = request.context, part.attributes or {}, Status(StatusCode.UNSET)
        context = SpanContext(
            parent_context.trace_id, _new_span_id(), False, parent_context.trace_flags, parent_context.trace_state
        )
        if part.error:
            attributes, status = {**attributes, "error.type": part.error}, Status(StatusCode.ERROR)
        times = (part.began_ns + request.wall_offset_ns, part.ended_ns + request.wall_offset_ns)
        links = [Link(each) for each in part.links]
        return self._span(part.name, context, parent_context, attributes, times, status, SpanKind.INTERNAL, links)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: dict[str, Any],
        times_ns: tuple[int, int],
        status: Status,
        kind: SpanKind,
        links: list[Link] | None = None,
    ) -> ReadableSpan:
        """Create a finished span. A `Tracer` of the SDK, which supports open spans, would take six times as long."""
        return ReadableSpan(
            name, context, parent, self._resource, attributes, links=links or (), kind=kind, status=status,
            start_time=times_ns[0], end_time=times_ns[1], instrumentation_scope=self._scope,
        )  # fmt: skip


class TracingMiddleware:
    """ASGI middleware that traces requests. Requests that are not traced pass straight through."""

    def __init__(self, app: Callable[..., Awaitable[None]], tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Awaitable[None]:
        """See ASGI."""
        request = self._tracer.http(scope)
        CURRENT.set(request)  # even if it is None, because all requests of a connection share a context
        return self._app(scope, receive, send) if request is None else self._traced(request, scope, receive, send)

    async def _traced(self, request: TracedRequest, scope: dict[str, Any], receive: Any, send: Any) -> None:
        status = 0

        async def send_with_trace(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 200:
                    request.serialised()
                timing = f'traceparent;desc="{_traceparent(request.context)}"'
                message["headers"].append((b"server-timing", timing.encode()))
            await send(message)

        try:
            await self._app(scope, receive, send_with_trace)
        finally:
            self._tracer.http_ended(request, status)


def _new_span_id() -> int:
    """Return 64 random bits that are not all 0."""
    return getrandbits(64) or 1


def _traceparent(context: SpanContext) -> str:
    """Return a context in the format of the `traceparent` header."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _extract_context(parent: str, states: list[str]) -> Context:
    carrier = {"traceparent": parent, "tracestate": ",".join(states)} if states else {"traceparent": parent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _route(path: str) -> str:
    """Return the route of a path, with placeholders; empty if the path is not one for inference."""
    match = ROUTES.match(path)
    return match[0].path if match is not None and match[0].handler in INFERENCE_HANDLERS else ""


def resource() -> Resource:
    """Return the OpenTelemetry resource, which describes the server that sends the spans.

    `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` may change and extend it.
    """
    name = os.environ.get("OTEL_SERVICE_NAME") or "edgekit"
    return Resource.create({"service.name": name, "service.version": __version__})


def endpoint(url: str) -> str:
    """Return the URL to which spans are posted, with the path `/v1/traces` if the URL has none."""
    return url.rstrip("/") + "/v1/traces" if urlsplit(url).path in ("", "/") else url


class BoundedSession(requests.Session):
    """A session that reads no more of a reply than its status and a short body, and limits the wait for each byte.

    The SDK itself reads whole bodies, and measures its timeout with a clock that may jump.
    """

    reason = ""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no password from ~/.netrc and no proxy: connect only where the option says

    def request(self, method: Any, url: Any, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request. Raises RequestException for a redirect as well, because the spans were not accepted."""
        options = {**options, "stream": True, "timeout": min(options.get("timeout") or EXPORT_S, EXPORT_S)}
        try:
            response = super().request(method, url, *arguments, **options)
            size = response.headers.get("content-length", "")
            if size.isdecimal() and int(size[:9]) <= MAX_REPLY_BYTES:
                response.content  # noqa: B018  (reads the body, so that the connection can be reused)
            else:
                response.close()
        except Exception as error:  # also those of urllib3, for an invalid host
            self.reason = type(error).__name__
            raise
        self.reason = f"HTTP status {response.status_code}"
        if 300 <= response.status_code < 400:
            raise requests.RequestException(self.reason)
        return response


class CountingExporter(SpanExporter):
    """Passes spans to another exporter, and counts those that were delivered and lost.

    Failures are logged at most once in `LOG_INTERVAL_S`.
    """

    def __init__(self, exporter: SpanExporter, session: BoundedSession, url: str) -> None:
        self._exporter, self._session, self._url = exporter, session, url
        self.dequeued = self.delivered = self.lost = 0
        self.deadline_s = float("inf")
        self._is_failing = False
        self._logged_s = -LOG_INTERVAL_S

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans. Called in the processor's thread; never raises."""
        self.dequeued += len(spans)
        try:
            is_delivered = monotonic() < self.deadline_s and self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            is_delivered, self._session.reason = False, type(error).__name__
        if not is_delivered:
            self.lose(len(spans), self._session.reason)
            return SpanExportResult.FAILURE
        self.delivered += len(spans)
        if self._is_failing:
            self._is_failing = False
            log(f"traces: {self._url} accepts spans again; {self.lost} were lost since the start")
        return SpanExportResult.SUCCESS

    def lose(self, count: int, reason: str) -> None:
        """Count lost spans, and log the reason."""
        self.lost += count
        if monotonic() - self._logged_s >= LOG_INTERVAL_S and monotonic() < self.deadline_s:
            self._is_failing, self._logged_s = True, monotonic()
            log(f"traces: {self._url}: {reason}; spans are lost until it accepts them again; answers are not delayed")

    def shutdown(self) -> None:
        """Shut down the exporter behind this one."""
        self._exporter.shutdown()


class SpanQueue:
    """The queue of spans of one worker. `put` must be called in the event loop's thread, and never waits."""

    def __init__(self, url: str) -> None:
        for name in SILENT:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        sys.setswitchinterval(SWITCH_S)
        session = BoundedSession()
        otlp = OTLPSpanExporter(endpoint=endpoint(url), timeout=EXPORT_S, session=session)
        self._exporter = CountingExporter(otlp, session, url)
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=QUEUE, max_export_batch_size=BATCH)
        self._offered = self._put = 0

    def put(self, spans: list[ReadableSpan]) -> None:
        """Queue the spans of a request: all of them, or none if the queue is full."""
        self._offered += len(spans)
        if self._put - self._exporter.dequeued + len(spans) > QUEUE:
            self._exporter.lose(len(spans), f"{QUEUE} spans wait for it")
            return
        self._put += len(spans)
        for span in spans:
            self._processor.on_end(span)

    async def stop(self) -> None:
        """Send the queued spans, for at most `STOP_S`."""
        self._exporter.deadline_s = monotonic() + STOP_S
        thread = Thread(target=self._processor.shutdown, daemon=True)  # the SDK's own waits for up to 30 s
        thread.start()
        while thread.is_alive() and monotonic() < self._exporter.deadline_s:
            await asyncio.sleep(0.01)
        lost = self._offered - self._exporter.delivered
        if lost:
            log(f"traces: {lost} spans were lost")
