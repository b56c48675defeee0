"""An answer that is waited for, unless its client hangs up first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from edgekit.serve.batcher import Answer
from edgekit.serve.errors import ClientDisconnected

Receive = Callable[[], Awaitable[dict[str, Any]]]


async def or_gone(future: asyncio.Future[Answer], receive: Receive | None) -> Answer:
    """The answer; ClientDisconnected, and the job cancelled, where the client hangs up first."""
    if receive is None:
        return await future
    watcher = asyncio.ensure_future(receive())
    watcher.add_done_callback(lambda _: future.cancel())
    try:
        return await future
    except asyncio.CancelledError:
        if watcher.done() and not watcher.cancelled():
            raise ClientDisconnected from None
        raise
    finally:
        watcher.cancel()
