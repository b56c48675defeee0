"""The timeline of a traced request: when its parts began and ended. It is turned into spans after the answer is sent.

Timelines do not depend on OpenTelemetry. Requests that are not traced have no timeline.
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

MAX_PARTS = 64
"""The largest number of parts that are recorded for a request. A long recording may have thousands of windows."""


class Answer(Protocol):
    """An answer, as far as a timeline uses it: `batch` is the number of samples in the model's call.

    It is 0 if the answer came from the cache.
    """

    @property
    def batch(self) -> int: ...


A = TypeVar("A", bound=Answer)


class Part(NamedTuple):
    """A part of a request, which becomes a child of its span.

    Times are on the clock of `time.perf_counter_ns`, and `error` is empty if the part succeeded. `links` are the span
    contexts of all traced requests that shared one call of the model.
    """

    name: str
    began_ns: int
    ended_ns: int
    error: str = ""
    attributes: dict[str, Any] | None = None
    links: tuple[Any, ...] = ()


class Timeline:
    """One traced request: its parts, the context of its span, and the span's attributes.

    All parts share `wall_offset_ns`, which converts their times to the time of day. They therefore keep their lengths
    and their order even if the clock of the machine jumps.
    """

    def __init__(self, context: Any, attributes: dict[str, Any]) -> None:
        self.context, self.attributes = context, attributes
        self.began_ns = self.until_ns = perf_counter_ns()
        self.wall_offset_ns = time_ns() - self.began_ns
        self.parts: list[Part] = []
        self.dropped_parts = 0
        self.error: BaseException | None = None
        self._is_decoded = self._is_in_part = self._has_run = False

    def add(self, part: Part) -> None:
        """Add a part. Parts beyond `MAX_PARTS` are only counted."""
        self.until_ns = part.ended_ns
        if len(self.parts) < MAX_PARTS:
            self.parts.append(part)
        else:
            self.dropped_parts += 1

    def received(self, size_bytes: int) -> None:
        """Note that the body has been received, and that its decoding begins."""
        self.attributes["http.request.body.size"] = size_bytes
        self.until_ns = perf_counter_ns()

    async def await_answer(self, name: str, bundle: Any, answer: Awaitable[A]) -> A:
        """Await the answer of a model to decoded samples.

        This records the parts of the request that are recorded nowhere else: decoding its body, waiting in the queue if
        the model was never run for it, and waiting for the cache.
        """
        if not self._is_decoded:
            self._is_decoded = True
            self.add(Part("decode", self.until_ns, perf_counter_ns()))
            self.attributes["edgekit.model"] = name
            self.attributes["edgekit.version"] = bundle.version
            self.attributes["edgekit.interpreter"] = bundle.interpreter
        self._has_run = False
        self.until_ns = perf_counter_ns()
        try:
            result = await answer
        except BaseException as error:  # refused by the queue, or the client disconnected
            if not self._has_run:
                self.add(Part("queue", self.until_ns, perf_counter_ns(), error_type(error)))
            raise
        if not self._has_run:  # from the cache, or with an equal request
            self.add(Part("cache", self.until_ns, perf_counter_ns(), "", {"edgekit.cache.hit": result.batch == 0}))
        return result

    def run_timed(self, name: str, call: Callable[[], T]) -> T:
        """Call a function and record it as a part, unless it is called within another part."""
        if self._is_in_part:
            return call()
        self._is_in_part, error, began_ns = True, "", perf_counter_ns()
        try:
            return call()
        except BaseException as raised:
            error, self._has_run = error_type(raised), True
            raise
        finally:
            self._is_in_part = False
            self.add(Part(name, began_ns, perf_counter_ns(), error))

    def add_run(self, arrived_ns: int, began_ns: int, error: str, samples: int, links: tuple[Any, ...] = ()) -> None:
        """Record that the request waited in the queue and then ran until now, in a call with `samples` samples."""
        self._has_run = True
        self.add(Part("queue", arrived_ns, began_ns))
        self.add(Part("execute", began_ns, perf_counter_ns(), error, {"edgekit.batch.size": samples}, links))

    def serialised(self) -> None:
        """Record that the answer has been serialized."""
        if self.dropped_parts or (self.parts and self.parts[-1].name == "postprocess"):
            self.add(Part("serialise", self.until_ns, perf_counter_ns()))


CURRENT: ContextVar[Timeline | None] = ContextVar("timeline", default=None)
"""The timeline of the current request; None if it is not traced."""


def timed_part(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method, so that its calls are recorded as a part of the request."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            timeline = CURRENT.get()
            if timeline is None:
                return method(*args, **kwargs)
            return timeline.run_timed(name, lambda: method(*args, **kwargs))

        return measured

    return decorate


def note_error(error: BaseException) -> None:
    """Store the exception that ended the request, for its span."""
    timeline = CURRENT.get()
    if timeline is not None:
        timeline.error = error


def error_type(error: BaseException) -> str:
    """Return the value of the attribute `error.type` as OpenTelemetry's conventions define it.

    It is the HTTP status if the error has one, else the name of the exception's class.
    """
    return str(error.status) if isinstance(error, RequestError) else type(error).__name__
