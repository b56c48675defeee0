"""Maintenance of a shared cache: hash every object, and remove damaged objects and old stages on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from edgekit.core.artifacts import RECORD
from edgekit.core.errors import ConfigError, ResourceError
from edgekit.runner.errors import bounded_recursion
from edgekit.workbook.shared_cache import entry as entries
from edgekit.workbook.shared_cache.cache import SharedCache
from edgekit.workbook.shared_cache.entry import SHA256, Entry, NotebookEntry, PageEntry, blob_path
from edgekit.workbook.shared_cache.stores import PARTIAL_PREFIX, FolderStore, Store, StoredObject, StoreError
from edgekit.workbook.shared_cache.transfer import limit_s, object_sha256, read_small, run_all

LISTING_LIMIT_S = 600.0
DAY_S = 86_400.0


@dataclass
class CacheReport:
    """The result of a check.

    Objects are listed by path. `damaged` says what is wrong with an object. A blob holds the bytes of a file, and
    `unused` are the blobs that no entry needs.
    """

    entries: int = 0
    blobs: int = 0
    bytes: int = 0
    damaged: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def check(cache: SharedCache, remove: bool = False) -> CacheReport:
    """Hash every blob, and check that the blobs that each entry needs are there. With `remove`, remove what is damaged.

    Raises
    ------
    ConfigError
        The cache is a folder that does not exist.
    ResourceError
        The store failed.
    """
    return _with_store(cache, lambda store: _check(store, remove))


def prune(cache: SharedCache, older_than_days: float) -> CacheReport:
    """Remove entries that are older than the given age, then old blobs that no entry needs. Raises like `check`."""
    return _with_store(cache, lambda store: _prune(store, older_than_days * DAY_S))


def _with_store(cache: SharedCache, work: Callable[[Store], CacheReport]) -> CacheReport:
    # a misspelt folder must not pass as an undamaged cache
    if isinstance(cache.store, FolderStore) and not cache.store.folder.exists():
        raise ConfigError(f"cache {cache.url}: no such folder; name a folder that runs have filled with --cache")
    try:
        return work(cache.store)
    except StoreError as error:
        raise ResourceError(f"cache {cache.url}: {error}") from None


def _check(store: Store, remove: bool) -> CacheReport:
    report = CacheReport()
    blobs = {blob.path: blob for blob in _list(store, "cas/")}
    report.blobs, report.bytes = len(blobs), sum(blob.size_bytes for blob in blobs.values())
    digests = run_all([partial(object_sha256, store, path) for path in blobs], LISTING_LIMIT_S + limit_s(report.bytes))
    for path, blob in zip(blobs, digests):
        if blob is None or path != blob_path(blob):
            report.damaged[path] = "does not match its digest"
    needed: set[str] = set()
    for entry in _list(store, "keys/"):
        report.entries += 1
        try:
            required = _required_blobs(store, entry.path)
        except StoreError as error:
            report.damaged[entry.path] = str(error)
            continue
        needed |= required
        missing = sorted(path for path in required if path not in blobs or path in report.damaged)
        if missing:
            report.damaged[entry.path] = f"needs {missing[0]}, which is missing or damaged"
    report.unused = sorted(blobs.keys() - needed - report.damaged.keys())
    for path in report.damaged if remove else ():
        _remove(store, path, report)
    return report


def _prune(store: Store, older_than_s: float) -> CacheReport:
    report = CacheReport()
    needed: set[str] = set()
    for entry in _list(store, "keys/"):
        if entry.age_s > older_than_s:
            _remove(store, entry.path, report)
            continue
        report.entries += 1
        try:
            needed |= _required_blobs(store, entry.path)
        except StoreError as error:
            report.damaged[entry.path] = str(error)
    for blob in _list(store, "cas/", include_partial=True):
        if blob.path not in needed and blob.age_s > older_than_s:
            _remove(store, blob.path, report)
            report.bytes += blob.size_bytes
        else:
            report.blobs += 1
    return report


def _required_blobs(store: Store, path: str) -> set[str]:
    """Return the paths of the blobs that an entry needs, directly or through its record.

    Raises
    ------
    StoreError
        The entry or its record is damaged.
    """
    entry = _read_entry(store, path)
    if isinstance(entry, NotebookEntry):
        return {blob_path(entry.receipt.executed_sha256)}
    if isinstance(entry, PageEntry):
        return {blob_path(sha) for sha, _ in entry.files.values()}
    data = read_small(store, blob_path(entry.record))
    try:
        with bounded_recursion():
            files = json.loads(data or b"")["files"]
        is_valid = set(files) | {RECORD} == set(entry.sizes_bytes) and all(
            SHA256.fullmatch(sha) for sha in files.values()
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise StoreError("damaged", f"needs {blob_path(entry.record)}, which is missing or damaged")
    return {blob_path(entry.record), *map(blob_path, files.values())}


def _read_entry(store: Store, path: str) -> Entry | NotebookEntry | PageEntry:
    data = read_small(store, path)
    if data is None:
        raise StoreError("damaged", "has been removed")
    parts = path.removeprefix("keys/").split(".")
    entry: Entry | NotebookEntry | PageEntry
    if parts[1:] == ["page", "json"]:
        entry = entries.parse_page(data, path)
    else:
        entry = entries.parse(data, path) if len(parts) == 3 else entries.parse_notebook(data, path)
    if parts[0] != entry.key:
        raise StoreError("damaged", "belongs to another key")
    return entry


def _list(store: Store, prefix: str, include_partial: bool = False) -> Iterator[StoredObject]:
    """Yield the objects below `prefix`.

    With `include_partial`, also yield partial objects that a killed writer left.
    """
    (objects,) = run_all([lambda: list(store.list(prefix))], LISTING_LIMIT_S)
    return (item for item in objects if include_partial or not item.path.startswith(prefix + PARTIAL_PREFIX))


def _remove(store: Store, path: str, report: CacheReport) -> None:
    run_all([partial(store.remove, path)], LISTING_LIMIT_S)
    report.removed.append(path)
