"""A request that is traced: when its parts began and ended. Spans are made of it once its answer is on its way."""

from __future__ import annotations

from contextvars import ContextVar
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple

from opentelemetry.trace import SpanContext

from edgekit.serve.batcher import Answer
from edgekit.serve.errors import RequestError
from edgekit.serve.served import Served

MOST_PARTS = 64
"""Of one request: a long recording has thousands of windows, and memory is bounded."""


class Part(NamedTuple):
    """A child of the request's span; times are of `time.perf_counter_ns`, `error` is empty where it went well."""

    name: str
    began_ns: int
    ended_ns: int
    error: str = ""
    attributes: dict[str, Any] | None = None
    links: tuple[SpanContext, ...] = ()


class Traced:
    """One request. `context` is its span's, `parent` the client's; `wall_ns` makes a time of day of a part's times.

    All parts have the one `wall_ns`: where the clock jumps, they keep their lengths and their order.
    """

    def __init__(self, context: SpanContext, parent: SpanContext | None, name: str, attributes: dict[str, Any]) -> None:
        self.context, self.parent, self.name, self.attributes = context, parent, name, attributes
        self.began_ns = self.until_ns = perf_counter_ns()
        self.wall_ns = time_ns() - self.began_ns
        self.parts: list[Part] = []
        self.left_out = 0
        self.error: BaseException | None = None
        self._is_decoded = self._is_within = self._has_run = False

    def add(self, part: Part) -> None:
        """The next part; what comes beyond `MOST_PARTS` is only counted."""
        self.until_ns = part.ended_ns
        if len(self.parts) < MOST_PARTS:
            self.parts.append(part)
        else:
            self.left_out += 1

    def received(self, size_bytes: int) -> None:
        """The body is there; what follows is its decoding."""
        self.attributes["http.request.body.size"] = size_bytes
        self.until_ns = perf_counter_ns()

    def asks(self, served: Served) -> None:
        """The samples are known, and go to this model."""
        if not self._is_decoded:
            self._is_decoded = True
            self.add(Part("decode", self.until_ns, perf_counter_ns()))
            self.attributes["edgekit.model"] = served.name
            self.attributes["edgekit.version"] = served.proven.version
            self.attributes["edgekit.interpreter"] = served.proven.interpreter
        self._has_run = False
        self.until_ns = perf_counter_ns()

    def timed(self, name: str, call: Any, *arguments: Any, **options: Any) -> Any:
        """What `call` gives; it is a part, unless it is called within one."""
        if self._is_within:
            return call(*arguments, **options)
        self._is_within, error, began_ns = True, "", perf_counter_ns()
        try:
            return call(*arguments, **options)
        except BaseException as raised:
            error, self._has_run = error_type(raised), True
            raise
        finally:
            self._is_within = False
            self.add(Part(name, began_ns, perf_counter_ns(), error))

    def ran(self, times_ns: tuple[int, int, int], error: str, samples: int, links: tuple[SpanContext, ...]) -> None:
        """It waited and was executed: `times_ns` are when it came to the queue, when its call began and ended.

        `samples` are those of the whole call, `links` all traced requests in it, where it was not alone.
        """
        self._has_run = True
        came_ns, began_ns, ended_ns = times_ns
        self.add(Part("queue", came_ns, began_ns))
        self.add(Part("execute", began_ns, ended_ns, error, {"edgekit.batch.size": samples}, links))

    def answered(self, answer: Answer) -> None:
        """It has its outputs; without a call of its own, from the cache or with an equal request."""
        if not self._has_run:
            self.add(Part("cache", self.until_ns, perf_counter_ns(), "", {"edgekit.cache.hit": answer.batch == 0}))

    def left(self, error: BaseException) -> None:
        """It has no outputs: it was refused by the queue or in it, or its client hung up."""
        if not self._has_run:
            self.add(Part("queue", self.until_ns, perf_counter_ns(), error_type(error)))

    def serialised(self) -> None:
        """Its answer is bytes."""
        if self.left_out or (self.parts and self.parts[-1].name == "postprocess"):
            self.add(Part("serialise", self.until_ns, perf_counter_ns()))


CURRENT: ContextVar[Traced | None] = ContextVar("traced", default=None)
"""The request that this code runs for; None where it is not traced."""


def error_type(error: BaseException) -> str:
    """By the conventions for `error.type`: a status where there is one, else a class of errors."""
    if isinstance(error, RequestError):
        return str(error.status)
    return type(error).__name__
