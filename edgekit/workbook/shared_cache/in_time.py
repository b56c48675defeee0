"""Work that may hang, such as a store that is gone: done by threads that are left behind after a time limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from edgekit.workbook.shared_cache.store import StoreError

T = TypeVar("T")
ANSWER_S = 30.0
"""Longest time for an answer that is short."""
SLOWEST_BYTES_PER_S = 256 * 1024
"""Slower than this, a store is of no use."""
AT_ONCE = 8


def limit_s(size_bytes: int) -> float:
    """Seconds that a transfer of so many bytes may take."""
    return ANSWER_S + size_bytes / SLOWEST_BYTES_PER_S


def do_all(tasks: Sequence[Callable[[], T]], seconds: float) -> list[T]:
    """The results of all tasks, in their order, several of them at once; the first error is raised.

    StoreError after `seconds`; a task that hangs is left to itself and holds up nobody, not even the process's end.
    """
    todo: queue.SimpleQueue[tuple[int, Callable[[], T]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    stop = threading.Event()
    for numbered in enumerate(tasks):
        todo.put(numbered)

    def work() -> None:
        while not stop.is_set():
            try:
                number, task = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, task(), None))
            except BaseException as error:  # goes on in the thread that waits
                done.put((number, None, error))
                return

    for _ in range(min(AT_ONCE, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, T] = {}
    ends = time.monotonic() + seconds
    try:
        while len(results) < len(tasks):
            try:
                number, result, error = done.get(timeout=max(ends - time.monotonic(), 0.0))
            except queue.Empty:
                raise StoreError("unreachable", f"no answer within {seconds:.0f} s") from None
            if error is not None:
                raise error
            results[number] = result  # type: ignore[assignment]  # T may itself be None
    finally:
        stop.set()
    return [results[number] for number in range(len(tasks))]
