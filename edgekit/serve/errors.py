"""Why a request gets no answer: HTTP's status, a reason to count it under, and a sentence for the client."""

from __future__ import annotations

from enum import StrEnum

LONGEST_TEXT = 500
TOO_LATE = "it would be answered after its deadline"
DEADLINE_PASSED = "its deadline passed while it waited"


class Reason(StrEnum):
    """What a request without an answer is counted under, in metrics and in traces."""

    BUSY = "busy"
    LATE = "late"
    CANCELLED = "cancelled"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    FAILED = "failed"


_OF_STATUS = {
    401: Reason.UNAUTHORIZED,
    403: Reason.UNSUPPORTED,
    404: Reason.NOT_FOUND,
    413: Reason.TOO_LARGE,
    415: Reason.UNSUPPORTED,
    431: Reason.TOO_LARGE,
    500: Reason.FAILED,
    503: Reason.BUSY,
}
"""Unless the error says another; every other status is `INVALID`."""


class RequestError(Exception):
    """A request that gets no answer.

    Parameters
    ----------
    status
        HTTP's status.
    text
        What the client reads. It says nothing of the server's insides.
    retry_after_s
        Seconds until another try makes sense, for 503.
    allow
        The methods that the path takes, for 405.
    reason
        What it is counted under; by default it follows from the status.
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
        self.reason = reason or _OF_STATUS.get(status, Reason.INVALID)
        self.is_counted = False


class ClientDisconnected(Exception):
    """The client closed its connection before its answer was ready; nobody waits for one any more."""


def printable(text: str) -> str:
    """A client's text as it may stand in an answer or a log line: on one line, printable, not endless."""
    shown = text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + "…"


def busy(text: str, wait_s: float) -> RequestError:
    """503 because too much waits already; `wait_s` is how long the queue will take, see `_retry_after_s`."""
    return RequestError(503, text, _retry_after_s(wait_s))


def late(wait_s: float, text: str = TOO_LATE) -> RequestError:
    """503 because the deadline has passed, or will have before there is an answer."""
    return RequestError(503, text, _retry_after_s(wait_s), reason=Reason.LATE)


def _retry_after_s(wait_s: float) -> int:
    """At least one second, for the header takes whole ones."""
    return max(1, round(wait_s + 0.5))
