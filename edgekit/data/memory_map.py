"""Samples taken from a memory map without a copy of them in memory: what is large is a file of the cache, mapped.

A split below `limit_bytes` is copied into memory, as it always was: that is faster, and its size is bounded. A larger
one is written to the cache once, row by row, in the order in which it is wanted. Every later process maps that file.
The values are the same either way.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConfigError, DataError
from edgekit.core.hashing import digest, write_json
from edgekit.data import cache_folder
from edgekit.data.paths import file_stamp

LIMIT_VARIABLE = "EDGEKIT_SPLIT_MB"
"""Environment variable: the most megabytes of a mapped split that are copied into memory. It changes no result."""
DEFAULT_LIMIT_MB = 256
CHUNK_BYTES = 8 << 20
FORMAT = 1
_FILE, _CHECKED = "samples", "checked.json"


def limit_bytes() -> int:
    """The size above which a split that comes from a memory map stays on disk; ConfigError for a wrong variable."""
    text = os.environ.get(LIMIT_VARIABLE, "") or str(DEFAULT_LIMIT_MB)
    if not text.isdecimal():
        raise ConfigError(f"{LIMIT_VARIABLE}: got {text!r}; give a whole number of megabytes, or unset it")
    return int(text) << 20


def take(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """`x[indices]` for whole-number indices: a copy in memory, or a memory map where `x` is one and that is large."""
    source = _identity(x)
    if source is None or len(indices) * _row_bytes(x) <= limit_bytes():
        return x[indices]
    order = np.asarray(indices, np.int64)
    key = digest(["take", source, hashlib.sha256(order.tobytes()).hexdigest()])
    parts = (np.asarray(x[order[part]]) for part in chunks(x, len(order)))
    return _kept(_cache(x), key, (len(order), *x.shape[1:]), x.dtype, parts)


def join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Both, the second behind the first: in memory, or a memory map where one of them is one and the whole is large."""
    mapped = [each for each in (first, second) if _identity(each) is not None]
    count = len(first) + len(second)
    if not mapped or count * _row_bytes(first) <= limit_bytes():
        return np.concatenate([first, second])
    key = digest(["join", *(_identity(each) or _content(each) for each in (first, second))])
    parts = (np.asarray(each[part]) for each in (first, second) for part in chunks(each))
    return _kept(_cache(mapped[0]), key, (count, *first.shape[1:]), first.dtype, parts)


def stack_parts(parts: Iterable[np.ndarray], count: int, folder: Path) -> np.ndarray:
    """Parts of `count` rows in all, one behind the other: in memory, or a memory map of a file in `folder`."""
    found = iter(parts)
    first = next(found)
    if count * _row_bytes(first) <= limit_bytes():
        return np.concatenate([first, *found])
    path = folder / f"{_FILE}.npy"
    cache_folder.write_rows(path, (count, *first.shape[1:]), first.dtype, _chain(first, found))
    rows: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return rows


def file_location(x: np.ndarray) -> list[Any] | None:
    """What `reopened` needs to map an array that looks into a file; None where it lies in memory."""
    found = _identity(x)
    return None if found is None else [found[0], *found[-4:]]


def open_location(path: str, offset: int, shape: list[int], strides: list[int], dtype: str) -> np.ndarray:
    """The array that lies at a place of a file, mapped and read-only."""
    found: np.ndarray = np.ndarray(shape, dtype, np.memmap(path, np.uint8, "r"), offset, strides)
    return found


def chunks(x: np.ndarray, count: int | None = None) -> Iterator[slice]:
    """Slices over the rows of `x`, or over `count` rows like its own, each of some megabytes."""
    rows = max(1, CHUNK_BYTES // max(1, _row_bytes(x)))
    total = len(x) if count is None else count
    return (slice(start, min(start + rows, total)) for start in range(0, total, rows))


def _chain(first: np.ndarray, rest: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from rest


def _row_bytes(x: np.ndarray) -> int:
    return int(np.prod(x.shape[1:], dtype=np.int64)) * x.dtype.itemsize


def _map_of(x: np.ndarray) -> np.memmap[Any, Any] | None:
    """The memory map of a file that an array looks into; None where it lies in memory."""
    found: np.memmap[Any, Any] | None = None
    at: Any = x
    while isinstance(at, np.ndarray):
        if isinstance(at, np.memmap) and at.filename is not None:
            found = at
        at = at.base
    return found


def _identity(x: np.ndarray) -> list[Any] | None:
    """What names the bytes of a mapped array: its file as the file system knows it, and where in it they lie."""
    whole = _map_of(x)
    if whole is None:
        return None
    offset = whole.offset + _address(x) - _address(whole)
    try:
        path = Path(str(whole.filename)).resolve()
        return [str(path), *file_stamp(path), offset, list(x.shape), list(x.strides), x.dtype.str]
    except OSError:  # a file that was removed meanwhile has no name that another process could open
        return None


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _content(x: np.ndarray) -> list[Any]:
    return [hashlib.sha256(np.ascontiguousarray(x).data).hexdigest(), list(x.shape), x.dtype.str]


def _cache(x: np.ndarray) -> Path:
    """The cache that the mapped file stands in, else the default one."""
    whole = _map_of(x)
    assert whole is not None
    entry = Path(str(whole.filename)).parent
    return entry.parent if (entry / cache_folder.RECORD).is_file() else cache_folder.default_folder()


def _kept(
    root: Path, key: str, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[np.ndarray]
) -> np.ndarray:
    """The rows of a key as a memory map; `parts` makes them where they are not there."""
    folder = root / key
    if not is_checked(folder) and cache_folder.checked_record(folder) is None:
        with cache_folder.new_folder(root, key) as made:
            cache_folder.write_rows(made / f"{_FILE}.npy", shape, dtype, parts)
            cache_folder.write_record(made, {"format": FORMAT})
    path = folder / f"{_FILE}.npy"
    try:
        rows: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        _note_checked(folder)
    except (OSError, ValueError) as error:
        raise DataError(f"data.cache: {path} cannot be read ({error}); remove its folder, and run again") from None
    return rows


def is_checked(folder: Path) -> bool:
    """Whether the large file of an entry is, by its stamp, the one that was checked last: its bytes are the same."""
    try:
        return bool(json.loads((folder / _CHECKED).read_text(encoding="utf-8")) == file_stamp(folder / f"{_FILE}.npy"))
    except (OSError, ValueError):
        return False


def _note_checked(folder: Path) -> None:
    if not is_checked(folder):
        with suppress(OSError):  # a cache that cannot be written is read whole the next time
            write_json(folder / _CHECKED, file_stamp(folder / f"{_FILE}.npy"))
