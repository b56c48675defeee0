"""When the parts of a traced request began and ended; spans are made of it once the answer is on its way.

The server's own code writes here, and knows nothing of OpenTelemetry. Of a request that is not traced there is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from edgekit.serve.errors import RequestError

P = ParamSpec("P")
T = TypeVar("T")

MOST_PARTS = 64
"""Of one request: a long recording has thousands of windows, and memory is bounded."""


class Answer(Protocol):
    """What a model answered, as far as a timeline asks: of how many samples its call was, 0 from the cache."""

    @property
    def batch(self) -> int: ...


A = TypeVar("A", bound=Answer)


class Part(NamedTuple):
    """A child of the request's span; times are of `time.perf_counter_ns`, `error` is empty where it went well.

    `links` are the span contexts of all traced requests that one call of the model was for.
    """

    name: str
    began_ns: int
    ended_ns: int
    error: str = ""
    attributes: dict[str, Any] | None = None
    links: tuple[Any, ...] = ()


class Timeline:
    """One traced request. `context` is that of its span, `attributes` are the span's own.

    All parts share one `wall_ns`, which makes a time of day of their times: where the clock jumps, they keep their
    lengths and their order.
    """

    def __init__(self, context: Any, attributes: dict[str, Any]) -> None:
        self.context, self.attributes = context, attributes
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

    async def asked(self, name: str, bundle: Any, answer: Awaitable[A]) -> A:
        """Await the answer of a model to samples that are decoded by now, and note what no other part tells of it."""
        if not self._is_decoded:
            self._is_decoded = True
            self.add(Part("decode", self.until_ns, perf_counter_ns()))
            self.attributes["edgekit.model"] = name
            self.attributes["edgekit.version"] = bundle.version
            self.attributes["edgekit.interpreter"] = bundle.interpreter
        self._has_run = False
        self.until_ns = perf_counter_ns()
        try:
            found = await answer
        except BaseException as error:  # refused by the queue or in it, or the client hung up
            if not self._has_run:
                self.add(Part("queue", self.until_ns, perf_counter_ns(), error_type(error)))
            raise
        if not self._has_run:  # from the cache, or with an equal request
            self.add(Part("cache", self.until_ns, perf_counter_ns(), "", {"edgekit.cache.hit": found.batch == 0}))
        return found

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """What `call` gives; it is a part, unless it is called within one."""
        if self._is_within:
            return call()
        self._is_within, error, began_ns = True, "", perf_counter_ns()
        try:
            return call()
        except BaseException as raised:
            error, self._has_run = error_type(raised), True
            raise
        finally:
            self._is_within = False
            self.add(Part(name, began_ns, perf_counter_ns(), error))

    def ran(self, came_ns: int, began_ns: int, error: str, samples: int, links: tuple[Any, ...] = ()) -> None:
        """It waited and was executed, until now, in a call of `samples` samples."""
        self._has_run = True
        self.add(Part("queue", came_ns, began_ns))
        self.add(Part("execute", began_ns, perf_counter_ns(), error, {"edgekit.batch.size": samples}, links))

    def serialised(self) -> None:
        """Its answer is bytes."""
        if self.left_out or (self.parts and self.parts[-1].name == "postprocess"):
            self.add(Part("serialise", self.until_ns, perf_counter_ns()))


CURRENT: ContextVar[Timeline | None] = ContextVar("timeline", default=None)
"""Of the request that this code runs for; None where it is not traced."""


def timed(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method whose calls are a part of a request."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            timeline = CURRENT.get()
            if timeline is None:
                return method(*args, **kwargs)
            return timeline.timed(name, lambda: method(*args, **kwargs))

        return measured

    return decorate


def note_error(error: BaseException) -> None:
    """Keep what ended the request for its span."""
    timeline = CURRENT.get()
    if timeline is not None:
        timeline.error = error


def error_type(error: BaseException) -> str:
    """By OpenTelemetry's conventions for `error.type`: a status where there is one, else a class of errors."""
    return str(error.status) if isinstance(error, RequestError) else type(error).__name__
