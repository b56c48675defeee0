"""Objects that are moved and hashed on the way."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from edgekit.runner.files import make_folder
from edgekit.workbook.shared_cache.entry import MOST_BYTES, blob_path
from edgekit.workbook.shared_cache.stores import Store, StoreError


def read_small(store: Store, path: str) -> bytes | None:
    """A short object, such as an entry; None where there is none."""
    (found,) = do_all([partial(_collect, store, path)], ANSWER_S)
    return found


def create_small(store: Store, path: str, content: bytes) -> bool:
    """Create a short object; False where it is there."""
    (created,) = do_all([partial(store.create, path, content)], ANSWER_S)
    return created


def fetch_all(store: Store, wanted: dict[Path, tuple[str, int]]) -> None:
    """Write blobs into files, each with its sha256 and size in bytes; StoreError where one is another or missing."""
    for path in wanted:
        make_folder(path.parent)
    tasks = [partial(_fetch, store, path, sha, size) for path, (sha, size) in wanted.items()]
    do_all(tasks, limit_s(sum(size for _, size in wanted.values())))


def give_all(store: Store, given: dict[str, Path]) -> None:
    """Create the blobs of these files, by their sha256; one that is there stays."""
    tasks = [partial(store.create, blob_path(sha), path) for sha, path in given.items()]
    do_all(tasks, limit_s(sum(path.stat().st_size for path in given.values())))


def hashed(store: Store, path: str) -> str | None:
    """The sha256 of an object; None where there is none."""
    pieces = store.read(path)
    if pieces is None:
        return None
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _collect(store: Store, path: str) -> bytes | None:
    pieces = store.read(path)
    if pieces is None:
        return None
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > MOST_BYTES:
            raise StoreError("damaged", f"{path} is longer than any entry")
    return bytes(data)


def _fetch(store: Store, into: Path, sha: str, size_bytes: int) -> None:
    path = blob_path(sha)
    pieces = store.read(path)
    if pieces is None:
        raise StoreError("damaged", f"{path} is missing")
    hashed, length = hashlib.sha256(), 0
    with open(into, "wb") as stream:
        for piece in pieces:
            hashed.update(piece)
            length += len(piece)
            if length > size_bytes:
                break
            stream.write(piece)
    if length != size_bytes or hashed.hexdigest() != sha:
        raise StoreError("damaged", f"{path} holds other bytes than its name says")


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
