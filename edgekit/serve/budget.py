"""Bytes that the requests of a worker hold together: many that are each small enough cannot fill the memory."""

from __future__ import annotations

from edgekit.serve.errors import RequestError

BODIES, LEAST_BYTES = 4, 64 << 20
"""The budget is of so many of the largest bodies, and no less than this."""
SMALL_BYTES = 64 << 10
"""A request that holds no more is never refused: those of all connections together are few megabytes."""
RETRY_S = 1


class Budget:
    """Of one worker. A request may hold half of what the others leave: a few large ones never keep out the small."""

    def __init__(self, most_body_bytes: int) -> None:
        self.most_bytes = max(LEAST_BYTES, BODIES * most_body_bytes)
        self.used_bytes = 0


class Held:
    """What one request holds of a budget, from its first `take` to its `release`."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget, self._bytes = budget, 0

    def take(self, count: int) -> None:
        """So many bytes more; RequestError (503) if there is no space, unless no other request holds any."""
        budget, mine = self._budget, self._bytes + count
        others = budget.used_bytes - self._bytes
        if mine > SMALL_BYTES and others and 2 * mine > budget.most_bytes - others:
            raise RequestError(
                503,
                f"the requests in hand take {budget.used_bytes >> 20} MB, of {budget.most_bytes >> 20} MB for all; "
                "send large ones one after the other",
                RETRY_S,
            )
        self._bytes = mine
        budget.used_bytes += count

    def give(self, count: int) -> None:
        """So many bytes back."""
        self._bytes -= count
        self._budget.used_bytes -= count

    def release(self) -> None:
        """All of it."""
        self._budget.used_bytes -= self._bytes
        self._bytes = 0
