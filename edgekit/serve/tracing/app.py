"""The application and the admission of a worker that traces. A request that is not traced takes the usual way."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any

from edgekit.serve.admission import Admission
from edgekit.serve.app import App, Receive, Send
from edgekit.serve.batcher import Answer
from edgekit.serve.body import Body
from edgekit.serve.budget import Held
from edgekit.serve.counters import Memory
from edgekit.serve.errors import late
from edgekit.serve.headers import Headers
from edgekit.serve.served import Served
from edgekit.serve.settings import Settings
from edgekit.serve.tracing.context import traceparent
from edgekit.serve.tracing.traced import CURRENT, Traced
from edgekit.serve.tracing.tracer import Tracer


class TracedApp(App):
    """See App."""

    def __init__(self, settings: Settings, memory: Memory, tokens: tuple[bytes, ...] = (), number: int = 0) -> None:
        super().__init__(settings, memory, tokens, number)
        self.tracer = Tracer(settings)

    def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        """See App."""
        traced = self.tracer.http(scope)
        CURRENT.set(traced)  # None too: what one connection sends shares a context
        if traced is None:
            return super().__call__(scope, receive, send)
        return self._traced(traced, super().__call__, scope, receive, send)

    async def _traced(self, traced: Traced, call: Any, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        status = 0

        async def watched(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == 200:
                    traced.serialised()
                timing = f'traceparent;desc="{traceparent(traced.context)}"'
                message["headers"].append((b"server-timing", timing.encode()))
            await send(message)

        try:
            await call(scope, receive, watched)
        finally:
            self.tracer.http_ended(traced, status)

    def _answer(self, scope: dict[str, Any], receive: Receive) -> Any:
        traced, made = CURRENT.get(), super()._answer(scope, receive)
        return made if traced is None else noted(traced, made)

    def _body(self, headers: Headers, receive: Receive, held: Held, is_json: bool = False) -> Any:
        traced, made = CURRENT.get(), super()._body(headers, receive, held, is_json)
        return made if traced is None else self._received(traced, made)

    async def _received(self, traced: Traced, made: Awaitable[Body]) -> Body:
        body = await made
        traced.received(len(body))
        return body

    def run(
        self, served: Served, samples: Any, timeout_ms: float, receive: Receive | None, held: Held, since_s: float = 0.0
    ) -> Coroutine[Any, Any, Answer]:
        """See App."""
        traced, made = CURRENT.get(), super().run(served, samples, timeout_ms, receive, held, since_s)
        return made if traced is None else self._run(traced, served, made)

    async def _run(self, traced: Traced, served: Served, made: Awaitable[Answer]) -> Answer:
        traced.asks(served)
        try:
            answer = await made
        except BaseException as error:
            traced.left(error)
            raise
        traced.answered(answer)
        return answer


async def noted(traced: Traced, made: Awaitable[Any]) -> Any:
    """What `made` gives; an error is kept for the request's span."""
    try:
        return await made
    except BaseException as error:
        traced.error = error
        raise


class TracedAdmission(Admission):
    """See Admission. What is refused at the door has a span without children."""

    def __init__(self, app: TracedApp) -> None:
        super().__init__(app)
        self._tracer, self._scheme = app.tracer, "https" if app.settings.certificate else "http"

    def is_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """See Admission."""
        if not super().is_late(url, headers):
            return False
        path = url.decode("latin-1").partition("?")[0]
        scope = {"method": "POST", "path": path, "headers": headers, "scheme": self._scheme, "http_version": "1.1"}
        traced = self._tracer.http(scope)
        if traced is not None:
            traced.error = late(0)
            self._tracer.http_ended(traced, 503)
        return True
