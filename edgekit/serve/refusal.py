"""What a request is refused with: a code of HTTP, and a sentence that tells nothing of the server's insides."""

from __future__ import annotations

LONGEST_REASON = 500
LATE = "it would be answered after its deadline"
REASONS = (
    "busy", "late", "cancelled", "invalid", "too_large", "unsupported", "unauthorized", "not_found", "failed",
)  # fmt: skip
"""What a request without an answer is counted under."""
_OF_STATUS = {
    401: "unauthorized", 403: "unsupported", 404: "not_found", 413: "too_large", 415: "unsupported", 431: "too_large",
    500: "failed",
}  # fmt: skip


class Refusal(Exception):
    """A request that gets no answer: HTTP's `status`, `retry_after_s` seconds for 503, `allow` methods for 405."""

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None, allow: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = printable(reason)
        self.retry_after_s = retry_after_s
        self.allow = allow
        self.is_counted = False

    @property
    def kind(self) -> str:
        """Which of `REASONS` it is counted under."""
        if self.status == 503:
            return "late" if "deadline" in self.reason else "busy"
        return _OF_STATUS.get(self.status, "invalid")


def printable(text: str) -> str:
    """A client's text as it may stand in an answer or a log line: on one line, printable, not endless."""
    shown = text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)
    return shown if len(shown) <= LONGEST_REASON else shown[:LONGEST_REASON] + "…"


def busy(reason: str, wait_s: float) -> Refusal:
    """503, with the seconds after which another try makes sense: at least one, for the header takes whole ones."""
    return Refusal(503, reason, max(1, round(wait_s + 0.5)))
