"""Spans of OpenTelemetry for `serve --trace-to`: a tracer, an ASGI middleware, and the way to the collector.

Nothing of this is imported without that option. OpenTelemetry's own middleware (`opentelemetry-instrumentation-asgi`)
is not used: it costs every request 34 µs, this one 0.7 µs where a request is not traced, and it sends the query and the
client's address.

Whatever the collector does, answers do not wait for it: at most `QUEUE` spans are held, what is beyond is dropped and
counted, an export ends after `EXPORT_S`, and the process ends `STOP_S` after it was told to.
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
"""Of Trace Context level 2: whoever makes a span in a trace hands it on."""
INFERENCE_HANDLERS = (App.infer, App.predict)
GRPC_FAULTS = frozenset(("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"))
"""Codes of gRPC that are a server's errors; the others are its clients'."""
QUEUE, BATCH = 2048, 128
EXPORT_S, STOP_S = 5.0, 3.0
LOG_INTERVAL_S = 600.0
"""Between two lines about the same collector: one that comes and goes must not fill a disk."""
SWITCH_S = 5e-4
"""After so long the thread that encodes spans lets the event loop have Python's lock; 5 ms by default."""
MAX_REPLY_BYTES = 4096
SILENT = ("opentelemetry", "urllib3", "requests")
"""They would write a line for each bad header of a client, and for each span that is dropped."""


class Sampler:
    """Decides once for each request: `share` of those without a parent are traced, a parent decides for the others."""

    def __init__(self, share: float) -> None:
        self._root = TraceIdRatioBased(share)
        self._sampler = ParentBased(self._root)

    def begin(self, headers: Pairs) -> tuple[SpanContext, SpanContext | None] | None:
        """Contexts of the request's span and of its parent; None where the request is not traced."""
        parents, states = [], []
        for name, value in headers:
            if name == b"traceparent" or name == "traceparent":
                parents.append(value)
            elif name == b"tracestate" or name == "tracestate":
                states.append(value)
        if len(parents) == 1:  # two are as good as none, see the W3C's own test suite
            context = _extracted(_text(parents[0]), [_text(state) for state in states])
            parent = get_current_span(context).get_span_context()
            if parent.is_valid:
                return self._child(context, parent)
        trace_id = getrandbits(128)
        if trace_id & self._root.TRACE_ID_LIMIT >= self._root.bound:  # the sampler's own rule, without its objects
            return None
        return SpanContext(trace_id or 1, _new_span_id(), False, TraceFlags(TraceFlags.SAMPLED)), None

    def _child(self, context: Context, parent: SpanContext) -> tuple[SpanContext, SpanContext] | None:
        result = self._sampler.should_sample(context, parent.trace_id, "")
        if not result.decision.is_sampled():
            return None
        flags = TraceFlags(TraceFlags.SAMPLED | parent.trace_flags & RANDOM_FLAG)
        return SpanContext(parent.trace_id, _new_span_id(), False, flags, result.trace_state), parent


class TracedRequest(Timeline):
    """A traced request: the timeline of its parts, and what its own span is called."""

    def __init__(self, context: SpanContext, parent: SpanContext | None, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(context, attributes)
        self.parent, self.name = parent, name


class Tracer:
    """Begins and ends the traced requests of one worker, and hands their spans to the queue for the collector."""

    def __init__(self, settings: Settings) -> None:
        self._scheme = "https" if settings.certificate else "http"
        self._sampling = Sampler(settings.trace_share)
        self._queue = SpanQueue(settings.trace_to)
        self._resource = resource()
        self._scope = InstrumentationScope("edgekit.serve", __version__)

    def http(self, scope: dict[str, Any]) -> TracedRequest | None:
        """A request over HTTP that begins; None where it is not traced. Probes of health never are."""
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
        """Answered with `status`, 0 where nobody is there any more."""
        if status:
            request.attributes["http.response.status_code"] = status
        self._ended(request, str(status) if status >= 500 else "" if status else "cancelled")

    def refused_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """A POST that was refused by its headers alone; its span has no children."""
        path = url.decode("latin-1").partition("?")[0]
        scope = {"method": "POST", "path": path, "headers": headers, "scheme": self._scheme, "http_version": "1.1"}
        request = self.http(scope)
        if request is not None:
            request.error = late_error(0)
            self.http_ended(request, 503)

    def grpc(self, name: str, metadata: Pairs) -> TracedRequest | None:
        """A call over gRPC that begins; None where it is not traced."""
        contexts = self._sampling.begin(metadata)
        return (
            None
            if contexts is None
            else TracedRequest(*contexts, name, {"rpc.system.name": "grpc", "rpc.method": name})
        )

    def grpc_ended(self, request: TracedRequest, code: str) -> None:
        """Ended with `code`, a name of gRPC's."""
        request.attributes["rpc.response.status_code"] = code
        self._ended(request, code if code in GRPC_FAULTS else "")

    async def stop(self) -> None:
        """Deliver the last spans."""
        await self._queue.stop()

    def _ended(self, request: TracedRequest, fault: str) -> None:
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
        """All is known by now: a `Tracer` of the SDK would take six times as long, for spans that are still open."""
        return ReadableSpan(
            name, context, parent, self._resource, attributes, links=links or (), kind=kind, status=status,
            start_time=times_ns[0], end_time=times_ns[1], instrumentation_scope=self._scope,
        )  # fmt: skip


class TracingMiddleware:
    """An ASGI application around another one. A request that is not traced goes straight through."""

    def __init__(self, app: Callable[..., Awaitable[None]], tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Awaitable[None]:
        """See ASGI."""
        request = self._tracer.http(scope)
        CURRENT.set(request)  # None too: what one connection sends shares a context
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
    """64 bits, not all 0."""
    return getrandbits(64) or 1


def _traceparent(context: SpanContext) -> str:
    """As the header has it."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _extracted(parent: str, states: list[str]) -> Context:
    carrier = {"traceparent": parent, "tracestate": ",".join(states)} if states else {"traceparent": parent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _route(path: str) -> str:
    """The path with names for what differs; empty for what asks no model."""
    match = ROUTES.match(path)
    return match[0].path if match is not None and match[0].handler in INFERENCE_HANDLERS else ""


def resource() -> Resource:
    """What sends; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` may say more."""
    name = os.environ.get("OTEL_SERVICE_NAME") or "edgekit"
    return Resource.create({"service.name": name, "service.version": __version__})


def endpoint(url: str) -> str:
    """Where spans are posted: the path `/v1/traces` where the URL names none."""
    return url.rstrip("/") + "/v1/traces" if urlsplit(url).path in ("", "/") else url


class BoundedSession(requests.Session):
    """Takes no more of an answer than its status and a little body, and no longer than `EXPORT_S` between two bytes.

    The SDK reads a whole body, and measures its patience with a clock that may jump.
    """

    reason = ""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no password of ~/.netrc, no proxy: it goes where the option says and nowhere else

    def request(self, method: Any, url: Any, *arguments: Any, **options: Any) -> requests.Response:
        """See requests; RequestException for a redirect, behind which nobody has taken the spans."""
        options = {**options, "stream": True, "timeout": min(options.get("timeout") or EXPORT_S, EXPORT_S)}
        try:
            response = super().request(method, url, *arguments, **options)
            size = response.headers.get("content-length", "")
            if size.isdecimal() and int(size[:9]) <= MAX_REPLY_BYTES:
                response.content  # noqa: B018  (reads it, and the connection stays)
            else:
                response.close()
        except Exception as error:  # of urllib3 too, for a host that is none
            self.reason = type(error).__name__
            raise
        self.reason = f"HTTP status {response.status_code}"
        if 300 <= response.status_code < 400:
            raise requests.RequestException(self.reason)
        return response


class CountingExporter(SpanExporter):
    """Hands on to `exporter`, counts what was taken from the queue and what was lost, and says so once."""

    def __init__(self, exporter: SpanExporter, session: BoundedSession, url: str) -> None:
        self._exporter, self._session, self._url = exporter, session, url
        self.dequeued = self.delivered = self.lost = 0
        self.deadline_s = float("inf")
        self._is_failing = False
        self._logged_s = -LOG_INTERVAL_S

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In the processor's thread; never raises."""
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
            log(f"traces: {self._url} takes spans again; {self.lost} were lost since the start")
        return SpanExportResult.SUCCESS

    def lose(self, count: int, reason: str) -> None:
        """Spans that nobody gets."""
        self.lost += count
        if monotonic() - self._logged_s >= LOG_INTERVAL_S and monotonic() < self.deadline_s:
            self._is_failing, self._logged_s = True, monotonic()
            log(f"traces: {self._url}: {reason}; spans are lost until it takes them again, answers do not wait")

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()


class SpanQueue:
    """Of one worker. `put` belongs to the event loop's thread, and never waits."""

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
        """A request's spans: all of them, or none where there is no room."""
        self._offered += len(spans)
        if self._put - self._exporter.dequeued + len(spans) > QUEUE:
            self._exporter.lose(len(spans), f"{QUEUE} spans wait for it")
            return
        self._put += len(spans)
        for span in spans:
            self._processor.on_end(span)

    async def stop(self) -> None:
        """Deliver what is there, for at most `STOP_S`."""
        self._exporter.deadline_s = monotonic() + STOP_S
        thread = Thread(target=self._processor.shutdown, daemon=True)  # the SDK's own waits for up to 30 s
        thread.start()
        while thread.is_alive() and monotonic() < self._exporter.deadline_s:
            await asyncio.sleep(0.01)
        lost = self._offered - self._exporter.delivered
        if lost:
            log(f"traces: {lost} spans were lost")
