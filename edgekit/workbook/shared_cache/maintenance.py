"""A whole cache looked over: every object hashed again, damage and old stages removed on request."""

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
from edgekit.workbook.shared_cache.stores import WORKING, FolderStore, Found, Store, StoreError
from edgekit.workbook.shared_cache.transfer import do_all, hashed, limit_s, read_small

LISTING_S = 600.0
DAY_S = 86_400.0


@dataclass
class Report:
    """Objects by their names. `damaged` says what is wrong; `unused` are blobs that no entry needs."""

    entries: int = 0
    blobs: int = 0
    bytes: int = 0
    damaged: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def check(cache: SharedCache, remove: bool = False) -> Report:
    """Hash every object and follow every entry; `remove` what is damaged. ResourceError where the store fails."""
    return _reach(cache, lambda store: _check(store, remove))


def prune(cache: SharedCache, older_than_days: float) -> Report:
    """Remove entries that are older, then old blobs that no entry needs. ResourceError where the store fails."""
    return _reach(cache, lambda store: _prune(store, older_than_days * DAY_S))


def _reach(cache: SharedCache, work: Callable[[Store], Report]) -> Report:
    if isinstance(cache.store, FolderStore) and not cache.store.folder.exists():  # a misspelt one is not whole
        raise ConfigError(f"cache {cache.url}: no such folder; name one that runs have filled with --cache")
    try:
        return work(cache.store)
    except StoreError as error:
        raise ResourceError(f"cache {cache.url}: {error}") from None


def _check(store: Store, remove: bool) -> Report:
    report = Report()
    blobs = {found.path: found for found in _list(store, "cas/")}
    report.blobs, report.bytes = len(blobs), sum(found.size_bytes for found in blobs.values())
    digests = do_all([partial(hashed, store, path) for path in blobs], LISTING_S + limit_s(report.bytes))
    for path, found in zip(blobs, digests):
        if found is None or path != blob_path(found):
            report.damaged[path] = "holds other bytes than its name says"
    needed: set[str] = set()
    for entry in _list(store, "keys/"):
        report.entries += 1
        try:
            needs = _needs(store, entry.path)
        except StoreError as error:
            report.damaged[entry.path] = str(error)
            continue
        needed |= needs
        lacking = sorted(path for path in needs if path not in blobs or path in report.damaged)
        if lacking:
            report.damaged[entry.path] = f"needs {lacking[0]}, which is missing or damaged"
    report.unused = sorted(blobs.keys() - needed - report.damaged.keys())
    for path in report.damaged if remove else ():
        _remove(store, path, report)
    return report


def _prune(store: Store, older_than_s: float) -> Report:
    report = Report()
    needed: set[str] = set()
    for entry in _list(store, "keys/"):
        if entry.age_s > older_than_s:
            _remove(store, entry.path, report)
            continue
        report.entries += 1
        try:
            needed |= _needs(store, entry.path)
        except StoreError as error:
            report.damaged[entry.path] = str(error)
    for blob in _list(store, "cas/", working=True):
        if blob.path not in needed and blob.age_s > older_than_s:
            _remove(store, blob.path, report)
            report.bytes += blob.size_bytes
        else:
            report.blobs += 1
    return report


def _needs(store: Store, path: str) -> set[str]:
    """The blobs that an entry names, itself or by its record; StoreError where it is not whole."""
    entry = _read_entry(store, path)
    if isinstance(entry, NotebookEntry):
        return {blob_path(entry.receipt.executed_sha256)}
    if isinstance(entry, PageEntry):
        return {blob_path(sha) for sha, _ in entry.files.values()}
    data = read_small(store, blob_path(entry.record))
    try:
        with bounded_recursion():
            files = json.loads(data or b"")["files"]
        good = set(files) | {RECORD} == set(entry.sizes_bytes) and all(SHA256.fullmatch(sha) for sha in files.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        good = False
    if not good:
        raise StoreError("damaged", f"needs {blob_path(entry.record)}, which is missing or damaged")
    return {blob_path(entry.record), *map(blob_path, files.values())}


def _read_entry(store: Store, path: str) -> Entry | NotebookEntry | PageEntry:
    data = read_small(store, path)
    if data is None:
        raise StoreError("damaged", "has gone")
    parts = path.removeprefix("keys/").split(".")
    entry: Entry | NotebookEntry | PageEntry
    if parts[1:] == ["page", "json"]:
        entry = entries.parse_page(data, path)
    else:
        entry = entries.parse(data, path) if len(parts) == 3 else entries.parse_notebook(data, path)
    if parts[0] != entry.key:
        raise StoreError("damaged", "is the entry of another key")
    return entry


def _list(store: Store, prefix: str, working: bool = False) -> Iterator[Found]:
    """Objects below `prefix`; `working`: with what a killed writer left."""
    (found,) = do_all([lambda: list(store.list(prefix))], LISTING_S)
    return (each for each in found if working or not each.path.startswith(prefix + WORKING))


def _remove(store: Store, path: str, report: Report) -> None:
    do_all([partial(store.remove, path)], LISTING_S)
    report.removed.append(path)
