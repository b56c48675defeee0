"""A request that ends without an answer is counted once, under its model and a reason, whichever door it came by."""

from __future__ import annotations

import asyncio
import traceback
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from edgekit.runner.errors import InputError
from edgekit.serve import counters
from edgekit.serve.budget import Budget, Held
from edgekit.serve.counters import FIELDS
from edgekit.serve.errors import ClientDisconnected, RequestError
from edgekit.serve.log import log, where

if TYPE_CHECKING:
    from edgekit.serve.watch.watcher import Watcher

INPUTS = frozenset(("invalid", "too_large", "unsupported"))
"""Reasons that lie with what the client sent; whoever watches the model is told."""


class Counts(Protocol):
    """A model as far as its requests are counted: its counters, who watches it, and how many requests hold it."""

    row: memoryview
    watcher: Watcher | None
    users: int


class Counted:
    """Around a request to one model: `with Counted(served, arrived_ns, budget) as held`.

    What is no refusal becomes one, with 500. What the request holds of the budget is released at its end.

    Until its end the model counts the request among its users, so that a new version does not close the old one
    under a request that is still being received.
    """

    __slots__ = ("_arrived_ns", "_held", "_row", "_served", "_watcher")

    def __init__(self, served: Counts, arrived_ns: int, budget: Budget) -> None:
        self._served, self._row, self._watcher = served, served.row, served.watcher
        self._arrived_ns, self._held = arrived_ns, Held(budget)

    def __enter__(self) -> Held:
        self._served.users += 1
        return self._held

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._served.users -= 1
        self._held.release()
        if error is None:
            return
        if isinstance(error, (ClientDisconnected, asyncio.CancelledError)):
            self._row[FIELDS["refused_cancelled"]] += 1
        elif isinstance(error, RequestError):
            refused(self._row, error, self._arrived_ns)
            if self._watcher is not None and error.reason in INPUTS:
                self._watcher.refused(InputError(error.text))
        elif isinstance(error, Exception):
            failure = internal(error)
            refused(self._row, failure, self._arrived_ns)
            raise failure from None


def refused(row: memoryview, refusal: RequestError, arrived_ns: int) -> None:
    """Count a refusal under a model."""
    refusal.is_counted = True
    counters.timed(row, "fail", perf_counter_ns() - arrived_ns)
    row[FIELDS[f"refused_{refusal.reason}"]] += 1


def refused_early(row: memoryview, refusal: RequestError) -> None:
    """Count one that was refused before its model was known; nothing where it was counted under a model."""
    if not refusal.is_counted:
        refusal.is_counted = True
        row[FIELDS[f"refused_{refusal.reason}"]] += 1


def ended(row: memoryview, error: Exception) -> RequestError:
    """What a request is refused with that ended in `error`, counted; nothing of the request is held any more.

    An exception holds the frames that it went through, and those hold what led to it: their body and their samples
    would stay until Python looks for such cycles.
    """
    refusal = error if isinstance(error, RequestError) else internal(error)
    refused_early(row, refusal)
    held: BaseException | None = error
    while held is not None:
        traceback.clear_frames(held.__traceback__)
        held = held.__context__
    return refusal


def internal(error: Exception) -> RequestError:
    """500 for what nobody expected; the log says where it was raised."""
    log(f"internal error: {where(error)}")
    return RequestError(500, "internal error")
