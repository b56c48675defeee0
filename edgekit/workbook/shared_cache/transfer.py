"""Move objects to and from a store, hashing them on the way."""

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
from edgekit.workbook.shared_cache.entry import MAX_ENTRY_BYTES, blob_path
from edgekit.workbook.shared_cache.stores import Store, StoreError


def read_small(store: Store, path: str) -> bytes | None:
    """Return a short object such as an entry, or None if it does not exist."""
    (content,) = run_all([partial(_collect, store, path)], ANSWER_LIMIT_S)
    return content


def create_small(store: Store, path: str, content: bytes) -> bool:
    """Create a short object. Returns False if it exists."""
    (created,) = run_all([partial(store.create, path, content)], ANSWER_LIMIT_S)
    return created


def fetch_all(store: Store, downloads: dict[Path, tuple[str, int]]) -> None:
    """Download blobs into files, each with its sha256 and size in bytes.

    Raises
    ------
    StoreError
        A blob is missing or its bytes differ.
    """
    for path in downloads:
        make_folder(path.parent)
    tasks = [partial(_fetch, store, path, sha, size) for path, (sha, size) in downloads.items()]
    run_all(tasks, limit_s(sum(size for _, size in downloads.values())))


def upload_all(store: Store, uploads: dict[str, Path]) -> None:
    """Upload files as blobs. The keys of `uploads` are their sha256. Existing blobs are not replaced."""
    tasks = [partial(store.create, blob_path(sha), path) for sha, path in uploads.items()]
    run_all(tasks, limit_s(sum(path.stat().st_size for path in uploads.values())))


def object_sha256(store: Store, path: str) -> str | None:
    """Return the sha256 of an object, or None if it does not exist."""
    chunks = store.read(path)
    if chunks is None:
        return None
    sha256 = hashlib.sha256()
    for chunk in chunks:
        sha256.update(chunk)
    return sha256.hexdigest()


def _collect(store: Store, path: str) -> bytes | None:
    chunks = store.read(path)
    if chunks is None:
        return None
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > MAX_ENTRY_BYTES:
            raise StoreError("damaged", f"{path} is longer than any entry")
    return bytes(data)


def _fetch(store: Store, destination: Path, sha: str, size_bytes: int) -> None:
    path = blob_path(sha)
    chunks = store.read(path)
    if chunks is None:
        raise StoreError("damaged", f"{path} is missing")
    digest, length = hashlib.sha256(), 0
    with open(destination, "wb") as stream:
        for chunk in chunks:
            digest.update(chunk)
            length += len(chunk)
            if length > size_bytes:
                break
            stream.write(chunk)
    if length != size_bytes or digest.hexdigest() != sha:
        raise StoreError("damaged", f"{path} does not match its digest")


T = TypeVar("T")
ANSWER_LIMIT_S = 30.0
"""Longest time for a short answer, in seconds."""
MIN_BYTES_PER_S = 256 * 1024
"""A transfer that is slower than this is given up."""
MAX_THREADS = 8


def limit_s(size_bytes: int) -> float:
    """Return how many seconds a transfer of this size may take."""
    return ANSWER_LIMIT_S + size_bytes / MIN_BYTES_PER_S


def run_all(tasks: Sequence[Callable[[], T]], seconds: float) -> list[T]:
    """Run all tasks, several at a time, and return their results in order. The first error is raised.

    A task that hangs is abandoned in a daemon thread, so that it delays nothing.

    Raises
    ------
    StoreError
        The tasks have not finished after `seconds`.
    """
    pending: queue.SimpleQueue[tuple[int, Callable[[], T]]] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    stop = threading.Event()
    for numbered_task in enumerate(tasks):
        pending.put(numbered_task)

    def work() -> None:
        while not stop.is_set():
            try:
                number, task = pending.get_nowait()
            except queue.Empty:
                return
            try:
                finished.put((number, task(), None))
            except BaseException as error:  # raised in the waiting thread
                finished.put((number, None, error))
                return

    for _ in range(min(MAX_THREADS, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, T] = {}
    deadline = time.monotonic() + seconds
    try:
        while len(results) < len(tasks):
            try:
                number, result, error = finished.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                raise StoreError("unreachable", f"no answer within {seconds:.0f} s") from None
            if error is not None:
                raise error
            results[number] = result  # type: ignore[assignment]  # T may itself be None
    finally:
        stop.set()
    return [results[number] for number in range(len(tasks))]
