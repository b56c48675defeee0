"""Take samples from memory maps without filling the memory.

A split of up to `limit_bytes` is copied to memory, because that is faster. A larger split is written to the cache once,
row by row in the requested order, and every later process maps that file. The values are the same either way.
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
from edgekit.core.paths import file_stamp
from edgekit.data import cache_folder

LIMIT_VARIABLE = "EDGEKIT_SPLIT_MB"
"""Environment variable with a number of megabytes. Mapped splits of up to this size are copied to memory.

It does not affect results.
"""
DEFAULT_LIMIT_MB = 256
CHUNK_BYTES = 8 << 20
FORMAT = 1
_FILE, _CHECKED = "samples", "checked.json"


def limit_bytes() -> int:
    """Return the size above which a mapped split stays on disk. Raises ConfigError if the variable's value is wrong."""
    text = os.environ.get(LIMIT_VARIABLE, "") or str(DEFAULT_LIMIT_MB)
    if not text.isdecimal():
        raise ConfigError(f"{LIMIT_VARIABLE}: got {text!r}; give a whole number of megabytes, or unset it")
    return int(text) << 20


def take(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return `x[indices]` for integer indices.

    The result is a copy in memory, or a memory map if `x` is one and the result is large.
    """
    source = _identity(x)
    if source is None or len(indices) * _row_bytes(x) <= limit_bytes():
        return x[indices]
    order = np.asarray(indices, np.int64)
    key = digest(["take", source, hashlib.sha256(order.tobytes()).hexdigest()])
    parts = (np.asarray(x[order[part]]) for part in chunks(x, len(order)))
    return _cached_rows(_cache(x), key, (len(order), *x.shape[1:]), x.dtype, parts)


def join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Concatenate two arrays. The result is a memory map if it is large and one of the arrays is a memory map."""
    mapped = [array for array in (first, second) if _identity(array) is not None]
    count = len(first) + len(second)
    if not mapped or count * _row_bytes(first) <= limit_bytes():
        return np.concatenate([first, second])
    key = digest(["join", *(_identity(array) or _content(array) for array in (first, second))])
    parts = (np.asarray(array[part]) for array in (first, second) for part in chunks(array))
    return _cached_rows(_cache(mapped[0]), key, (count, *first.shape[1:]), first.dtype, parts)


def stack_parts(parts: Iterable[np.ndarray], count: int, folder: Path) -> np.ndarray:
    """Join parts that have `count` rows in total to one array, in memory or as a memory map of a file in `folder`."""
    remaining_parts = iter(parts)
    first = next(remaining_parts)
    if count * _row_bytes(first) <= limit_bytes():
        return np.concatenate([first, *remaining_parts])
    path = folder / f"{_FILE}.npy"
    cache_folder.write_rows(path, (count, *first.shape[1:]), first.dtype, _chain(first, remaining_parts))
    rows: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return rows


def file_location(x: np.ndarray) -> list[Any] | None:
    """Return what `open_location` needs to map an array that lies in a file, or None if it lies in memory."""
    identity = _identity(x)
    return None if identity is None else [identity[0], *identity[-4:]]


def open_location(path: str, offset: int, shape: list[int], strides: list[int], dtype: str) -> np.ndarray:
    """Return the array at a location of a file, mapped and read-only."""
    mapped: np.ndarray = np.ndarray(shape, dtype, np.memmap(path, np.uint8, "r"), offset, strides)
    return mapped


def chunks(x: np.ndarray, count: int | None = None) -> Iterator[slice]:
    """Return slices of some megabytes each that cover the rows of `x`, or `count` rows of the same size."""
    rows = max(1, CHUNK_BYTES // max(1, _row_bytes(x)))
    total = len(x) if count is None else count
    return (slice(start, min(start + rows, total)) for start in range(0, total, rows))


def _chain(first: np.ndarray, rest: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from rest


def _row_bytes(x: np.ndarray) -> int:
    return int(np.prod(x.shape[1:], dtype=np.int64)) * x.dtype.itemsize


def _map_of(x: np.ndarray) -> np.memmap[Any, Any] | None:
    """Return the memory map of a file that an array is a part of, or None if the array lies in memory."""
    memory_map: np.memmap[Any, Any] | None = None
    base: Any = x
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            memory_map = base
        base = base.base
    return memory_map


def _identity(x: np.ndarray) -> list[Any] | None:
    """Return facts that identify the bytes of a mapped array: its file, position there and layout.

    The result is None if the array lies in memory.
    """
    memory_map = _map_of(x)
    if memory_map is None:
        return None
    offset = memory_map.offset + _address(x) - _address(memory_map)
    try:
        path = Path(str(memory_map.filename)).resolve()
        return [str(path), *file_stamp(path), offset, list(x.shape), list(x.strides), x.dtype.str]
    except OSError:  # a removed file cannot be opened by another process
        return None


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _content(x: np.ndarray) -> list[Any]:
    return [hashlib.sha256(np.ascontiguousarray(x).data).hexdigest(), list(x.shape), x.dtype.str]


def _cache(x: np.ndarray) -> Path:
    """Return the cache that the mapped file belongs to, or the default cache."""
    memory_map = _map_of(x)
    assert memory_map is not None
    entry = Path(str(memory_map.filename)).parent
    return entry.parent if (entry / cache_folder.RECORD).is_file() else cache_folder.default_folder()


def _cached_rows(
    root: Path, key: str, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[np.ndarray]
) -> np.ndarray:
    """Return the rows of a key as a memory map. If they are not in the cache, `parts` provides them."""
    folder = root / key
    if not is_checked(folder) and cache_folder.checked_record(folder) is None:
        with cache_folder.new_folder(root, key) as working_folder:
            cache_folder.write_rows(working_folder / f"{_FILE}.npy", shape, dtype, parts)
            cache_folder.write_record(working_folder, {"format": FORMAT})
    path = folder / f"{_FILE}.npy"
    try:
        rows: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        _note_checked(folder)
    except (OSError, ValueError) as error:
        raise DataError(f"data.cache: {path} cannot be read ({error}); remove its folder, and run again") from None
    return rows


def is_checked(folder: Path) -> bool:
    """Return whether an entry's large file still has the stamp of the last check, which means that it is unchanged."""
    try:
        return bool(json.loads((folder / _CHECKED).read_text(encoding="utf-8")) == file_stamp(folder / f"{_FILE}.npy"))
    except (OSError, ValueError):
        return False


def _note_checked(folder: Path) -> None:
    if not is_checked(folder):
        with suppress(OSError):  # a cache that cannot be written to is read and checked completely the next time
            write_json(folder / _CHECKED, file_stamp(folder / f"{_FILE}.npy"))
