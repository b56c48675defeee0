"""Refuses a request by its headers alone, when it cannot be answered in time: a quarter of the cheapest answer's cost.

A server that spends its time on refusing answers nobody. This is asked before there is a task, a body or an array.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

import orjson

from edgekit.serve.counted import refused, refused_early
from edgekit.serve.errors import TOO_LATE, RequestError, late
from edgekit.serve.headers import HEADER_LENGTH, check_token, deadline_ms

if TYPE_CHECKING:
    from edgekit.serve.app import App

_BODY = orjson.dumps({"error": TOO_LATE})
RETRY_S = 1
ANSWER = b"content-type: application/json\r\ncontent-length: %d\r\nretry-after: %d\r\n\r\n%b" % (
    len(_BODY),
    RETRY_S,
    _BODY,
)
"""What follows the status line and the server's own headers."""


RefusedLate = Callable[[bytes, list[tuple[bytes, bytes]]], None]


class Admission:
    """Asked for each request whose headers are whole. What is wrong with a request is for the app to say.

    `refused_late` is called with the URL and the headers of what was refused.
    """

    def __init__(self, app: App, refused_late: RefusedLate | None = None) -> None:
        self._app, self._refused_late = app, refused_late

    @property
    def is_ending(self) -> bool:
        """Whether the server stops, so that an answer is its connection's last."""
        return self._app.is_draining

    def refused(self, status: int, reason: str) -> None:
        """Count what a connection refuses by itself, before the app sees a request."""
        refused_early(self._app.row, RequestError(status, reason))

    def is_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a POST to `url` is to be refused at once; it is then counted as refused."""
        if self.is_ending or not (url.startswith(b"/v2/models/") and url.endswith(b"/infer")):
            return False
        app, found = self._app, dict(headers)
        try:
            granted_ms = deadline_ms(found)
            if not granted_ms and found.get(HEADER_LENGTH) == b"0":  # no JSON that could grant more
                granted_ms = app.settings.deadline_ms
            if not granted_ms or not app.turn.is_late(granted_ms / 1e3):
                return False
            if app.tokens:
                check_token(app.tokens, found)
            served = app.served_at(url.decode("ascii"))
        except (RequestError, ValueError):
            return False
        refused(served.row, late(0), perf_counter_ns())
        if self._refused_late is not None:
            self._refused_late(url, headers)
        return True
