"""W3C Trace Context of what comes, and which requests are traced: `ParentBased(TraceIdRatioBased)` of the SDK."""

from __future__ import annotations

from collections.abc import Iterable
from random import getrandbits

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanContext, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

RANDOM_FLAG = 0x02
"""Of Trace Context level 2: whoever makes a span in a trace hands it on."""
Pairs = Iterable[tuple[object, object]]


class Sampling:
    """Decides once for each request. `share` of those without a parent are traced; a parent decides for the others."""

    def __init__(self, share: float) -> None:
        self._root = TraceIdRatioBased(share)
        self._sampler = ParentBased(self._root)

    def begin(self, headers: Pairs) -> tuple[SpanContext, SpanContext | None] | None:
        """Contexts of the request's span and of its parent; None where the request is not traced."""
        found, states = [], []
        for name, value in headers:
            if name == b"traceparent" or name == "traceparent":
                found.append(value)
            elif name == b"tracestate" or name == "tracestate":
                states.append(value)
        if len(found) == 1:  # two are as good as none, see the W3C's own test suite
            context = _extracted(_text(found[0]), [_text(state) for state in states])
            parent = get_current_span(context).get_span_context()
            if parent.is_valid:
                return self._child(context, parent)
        trace_id = getrandbits(128)
        if trace_id & self._root.TRACE_ID_LIMIT >= self._root.bound:  # the sampler's own rule, without its objects
            return None
        return SpanContext(trace_id or 1, new_id(), False, TraceFlags(TraceFlags.SAMPLED)), None

    def _child(self, context: Context, parent: SpanContext) -> tuple[SpanContext, SpanContext] | None:
        decided = self._sampler.should_sample(context, parent.trace_id, "")
        if not decided.decision.is_sampled():
            return None
        flags = TraceFlags(TraceFlags.SAMPLED | parent.trace_flags & RANDOM_FLAG)
        return SpanContext(parent.trace_id, new_id(), False, flags, decided.trace_state), parent


def new_id() -> int:
    """Of a span: 64 bits, not all 0."""
    return getrandbits(64) or 1


def traceparent(context: SpanContext) -> str:
    """As the header has it."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _extracted(parent: str, states: list[str]) -> Context:
    carrier = {"traceparent": parent, "tracestate": ",".join(states)} if states else {"traceparent": parent}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
