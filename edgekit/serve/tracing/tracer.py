"""Spans of a traced request: the server's, and a child for each part. Names are OpenTelemetry's conventions."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from edgekit import __version__
from edgekit.serve.errors import ClientDisconnected, RequestError, printable
from edgekit.serve.protocol_buffers import SERVICE
from edgekit.serve.settings import Settings
from edgekit.serve.tracing.context import Pairs, Sampling, new_id
from edgekit.serve.tracing.delivery import Delivery, resource
from edgekit.serve.tracing.traced import Part, Traced, error_type

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"))
LONGEST_PATH = 256
FAULTS = frozenset(("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"))
"""Codes of gRPC that are a server's errors; the others are its clients'."""


class Tracer:
    """Of one worker."""

    def __init__(self, settings: Settings) -> None:
        self.sampling = Sampling(settings.trace_share)
        self.delivery = Delivery(settings.trace_to)
        self._resource = resource()
        self._scope = InstrumentationScope("edgekit.serve", __version__)

    def http(self, scope: dict[str, Any]) -> Traced | None:
        """A request over HTTP that begins; None where it is not traced. Probes of health never are."""
        contexts = self.sampling.begin(scope["headers"])
        if contexts is None or scope["path"].startswith("/v2/health/"):
            return None
        method, path = scope["method"], scope["path"]
        known, route = method in METHODS, _route(path.split("/"))
        attributes = {
            "http.request.method": method if known else "_OTHER",
            "url.path": printable(path[:LONGEST_PATH]),
            "url.scheme": scope["scheme"],
            "network.protocol.version": scope["http_version"],
        }
        if route:
            attributes["http.route"] = route
        if scope.get("server"):
            attributes["server.address"], attributes["server.port"] = scope["server"][:2]
        name = method if known else "HTTP"
        return Traced(*contexts, f"{name} {route}" if route else name, attributes)

    def grpc(self, method: str, metadata: Pairs) -> Traced | None:
        """A call over gRPC that begins; None where it is not traced."""
        contexts = self.sampling.begin(metadata)
        if contexts is None:
            return None
        name = f"{SERVICE}/{method}"
        return Traced(*contexts, name, {"rpc.system.name": "grpc", "rpc.method": name})

    def http_ended(self, traced: Traced, status: int) -> None:
        """Answered with `status`, 0 where nobody is there any more."""
        if status:
            traced.attributes["http.response.status_code"] = status
        self._ended(traced, str(status) if status >= 500 else "" if status else "cancelled")

    def grpc_ended(self, traced: Traced, code: str) -> None:
        """Ended with `code`, a name of gRPC's."""
        traced.attributes["rpc.response.status_code"] = code
        self._ended(traced, code if code in FAULTS else "")

    def _ended(self, traced: Traced, fault: str) -> None:
        error, status = traced.error, Status(StatusCode.UNSET)
        if isinstance(error, RequestError):
            traced.attributes["edgekit.refused"] = error.reason.value
        elif isinstance(error, ClientDisconnected):
            traced.attributes["edgekit.refused"] = "cancelled"
        if traced.left_out:
            traced.attributes["edgekit.parts_left_out"] = traced.left_out
        if fault:
            is_foreseen = isinstance(error, (RequestError, ClientDisconnected)) or not isinstance(error, Exception)
            traced.attributes["error.type"] = fault if is_foreseen or error is None else error_type(error)
            status = Status(StatusCode.ERROR, error.text if isinstance(error, RequestError) else None)
        spans = [self._child(traced, part) for part in traced.parts]
        times = (traced.began_ns + traced.wall_ns, perf_counter_ns() + traced.wall_ns)
        spans.append(
            self._span(traced.name, traced.context, traced.parent, traced.attributes, times, status, SpanKind.SERVER)
        )
        self.delivery.put(spans)

    def _child(self, traced: Traced, part: Part) -> ReadableSpan:
        above, attributes, status = traced.context, part.attributes or {}, Status(StatusCode.UNSET)
        context = SpanContext(above.trace_id, new_id(), False, above.trace_flags, above.trace_state)
        if part.error:
            attributes, status = {**attributes, "error.type": part.error}, Status(StatusCode.ERROR)
        times = (part.began_ns + traced.wall_ns, part.ended_ns + traced.wall_ns)
        links = [Link(each) for each in part.links]
        return self._span(part.name, context, above, attributes, times, status, SpanKind.INTERNAL, links)

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


def _route(parts: list[str]) -> str:
    """The path with names for what differs; empty for what asks no model."""
    if parts[1:2] == ["predict"]:
        return "/predict"
    if parts[:3] != ["", "v2", "models"] or parts[-1] != "infer":
        return ""
    return {5: "/v2/models/{model}/infer", 7: "/v2/models/{model}/versions/{version}/infer"}.get(len(parts), "")
