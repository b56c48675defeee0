"""The next batch is made in a thread while the network learns of this one.

numpy and the disk let other threads of the process go on while they work.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items in the same order; while one is used, the next is made in a thread.

    What `items` raises is raised here, in its place. Close what this returns where it is left before its end: then
    nothing is made any more.
    """
    end = object()
    with ThreadPoolExecutor(1, "batches") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
