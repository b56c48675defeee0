"""Errors of requests: an HTTP status, a reason for the counters, and a message for the client."""

from __future__ import annotations

from enum import StrEnum

MAX_TEXT_LENGTH = 500
LATE_TEXT = "it would be answered after its deadline"
DEADLINE_PASSED = "its deadline passed while it waited"


class Reason(StrEnum):
    """Why a request was not answered, as shown in metrics and traces."""

    BUSY = "busy"
    LATE = "late"
    CANCELLED = "cancelled"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    FAILED = "failed"


_REASON_OF_STATUS = {
    401: Reason.UNAUTHORIZED,
    403: Reason.UNSUPPORTED,
    404: Reason.NOT_FOUND,
    413: Reason.TOO_LARGE,
    415: Reason.UNSUPPORTED,
    431: Reason.TOO_LARGE,
    500: Reason.FAILED,
    503: Reason.BUSY,
}
"""The default reason for each status. Every other status is `INVALID`."""


class RequestError(Exception):
    """The error with which a request is refused.

    Parameters
    ----------
    status
        The HTTP status.
    text
        The message for the client. It must not reveal internals of the server.
    retry_after_s
        Seconds until another attempt makes sense, for 503.
    allow
        The methods that the path supports, for 405.
    reason
        The reason for the counters; by default it follows from the status.
    """

    def __init__(
        self,
        status: int,
        text: str,
        retry_after_s: int | None = None,
        allow: str = "",
        reason: Reason | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = printable(text)
        self.retry_after_s = retry_after_s
        self.allow = allow
        self.reason = reason or _REASON_OF_STATUS.get(status, Reason.INVALID)
        self.is_counted = False


class ClientDisconnected(Exception):
    """The client closed the connection before its answer was ready."""


def printable(text: str) -> str:
    """Make a text from a client safe for an answer or a log line: printable, on one line, and not too long."""
    text_on_one_line = text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)
    return text_on_one_line if len(text_on_one_line) <= MAX_TEXT_LENGTH else text_on_one_line[:MAX_TEXT_LENGTH] + "…"


def busy_error(text: str, wait_s: float) -> RequestError:
    """Return RequestError (503) for a full queue, whose samples will take about `wait_s`."""
    return RequestError(503, text, _retry_after_s(wait_s))


def late_error(wait_s: float, text: str = LATE_TEXT) -> RequestError:
    """Return RequestError (503) for a deadline that has passed, or will pass before the answer is ready."""
    return RequestError(503, text, _retry_after_s(wait_s), reason=Reason.LATE)


def _retry_after_s(wait_s: float) -> int:
    """Return the value of `Retry-After`: whole seconds, at least one."""
    return max(1, round(wait_s + 0.5))
