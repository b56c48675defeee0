"""Spans on their way to a collector, by the SDK's BatchSpanProcessor over OTLP/HTTP, in a thread of their own.

Whatever the collector does, answers do not wait for it: at most `QUEUE` spans are held, what is beyond is dropped and
counted, an export ends after `EXPORT_S`, and the process ends `STOP_S` after it was told to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from edgekit import __version__
from edgekit.serve.log import log

QUEUE, BATCH = 2048, 128
EXPORT_S, STOP_S = 5.0, 3.0
SAY_AGAIN_S = 600.0
"""Between two lines about the same collector: one that comes and goes must not fill a disk."""
SWITCH_S = 5e-4
"""After so long the thread that encodes spans lets the event loop have Python's lock; 5 ms by default."""
MOST_REPLY_BYTES = 4096
SILENT = ("opentelemetry", "urllib3", "requests")
"""They would write a line for each bad header of a client, and for each span that is dropped."""


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
            if size.isdecimal() and int(size[:9]) <= MOST_REPLY_BYTES:
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
        self.taken = self.delivered = self.lost = 0
        self.ends_s = float("inf")
        self._fails = False
        self._says_s = -SAY_AGAIN_S

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In the processor's thread; never raises."""
        self.taken += len(spans)
        try:
            done = monotonic() < self.ends_s and self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            done, self._session.reason = False, type(error).__name__
        if not done:
            self.lose(len(spans), self._session.reason)
            return SpanExportResult.FAILURE
        self.delivered += len(spans)
        if self._fails:
            self._fails = False
            log(f"traces: {self._url} takes spans again; {self.lost} were lost since the start")
        return SpanExportResult.SUCCESS

    def lose(self, count: int, reason: str) -> None:
        """Spans that nobody gets."""
        self.lost += count
        if monotonic() - self._says_s >= SAY_AGAIN_S and monotonic() < self.ends_s:
            self._fails, self._says_s = True, monotonic()
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
        if self._put - self._exporter.taken + len(spans) > QUEUE:
            self._exporter.lose(len(spans), f"{QUEUE} spans wait for it")
            return
        self._put += len(spans)
        for span in spans:
            self._processor.on_end(span)

    async def stop(self) -> None:
        """Deliver what is there, for at most `STOP_S`."""
        self._exporter.ends_s = monotonic() + STOP_S
        thread = Thread(target=self._processor.shutdown, daemon=True)  # the SDK's own waits for up to 30 s
        thread.start()
        while thread.is_alive() and monotonic() < self._exporter.ends_s:
            await asyncio.sleep(0.01)
        lost = self._offered - self._exporter.delivered
        if lost:
            log(f"traces: {lost} spans were lost")
