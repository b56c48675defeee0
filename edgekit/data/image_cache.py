"""Decoded samples on disk: one folder per key, put in its place whole, opened memory-mapped.

An entry holds `<split>_x.npy`, `<split>_y.npy` and `record.json` with the sha256 of each; an entry that does not
match its record is made anew. Two processes that make the same entry do not disturb each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data import cache_folder
from edgekit.data.paths import expand
from edgekit.data.types import Split

FORMAT = 2
_CHUNK = 4096


@dataclass(frozen=True)
class CachedImages:
    """What an entry holds; `corrupt` names each picture out of `total` that could not be read, and why."""

    splits: dict[str, Split]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    corrupt: list[str]
    total: int


def open_entry(root: Path, key: str) -> CachedImages | None:
    """The entry, every byte of it checked; None if there is none or it is damaged."""
    folder = root / key
    record = cache_folder.checked_record(folder)
    if record is None:
        return None
    try:
        splits = {
            name: Split(np.load(folder / f"{name}_x.npy", mmap_mode="r"), np.load(folder / f"{name}_y.npy"))
            for name in record["splits"]
        }
        return CachedImages(
            splits, tuple(record["classes"]), tuple(record["notes"]), record["corrupt"], record["total"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def cached(folder: str | None, key: str, fill: Callable[[Entry], None]) -> CachedImages:
    """The entry of a key, below `folder` or the default one; `fill` makes it where it is not there."""
    root = expand(folder, "data.cache") if folder else cache_folder.default_folder()
    found = open_entry(root, key)
    if found is None:
        with new_entry(root, key) as entry:
            fill(entry)
        found = open_entry(root, key)
    if found is None:
        raise DataError(f"data.cache: {root} does not keep what is written there; set data.cache to another folder")
    return found


@contextmanager
def new_entry(root: Path, key: str) -> Iterator[Entry]:
    """An entry to fill, put in its place at the end; nothing is left of it if that end is not reached."""
    with cache_folder.new_folder(root, key) as folder:
        yield Entry(folder)


class Entry:
    """An entry in the making."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._splits: list[str] = []

    def array(self, name: str, shape: tuple[int, ...], dtype: str = "uint8") -> np.ndarray:
        """An array on disk to write into. Its space is claimed at once: a full disk is an error, no signal."""
        path = self._folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):  # not on macOS
            with open(path, "r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
        return array

    def keep(self, split: str, good: np.ndarray, y: np.ndarray) -> None:
        """Close a split: only the samples marked good remain."""
        path = self._folder / f"{split}_x.npy"
        if not good.all():
            self._compact(path, np.flatnonzero(good))
        np.save(self._folder / f"{split}_y.npy", y[good])
        self._splits.append(split)

    def finish(self, classes: tuple[str, ...], notes: tuple[str, ...], corrupt: list[str], total: int) -> None:
        """Write the record, after everything that it vouches for is on disk."""
        record = {"format": FORMAT, "splits": self._splits, "classes": classes, "notes": notes}
        cache_folder.write_record(self._folder, {**record, "corrupt": corrupt, "total": total})

    def _compact(self, path: Path, kept: np.ndarray) -> None:
        whole = np.load(path, mmap_mode="r")
        smaller = self.array(f"{path.stem}_smaller", (len(kept), *whole.shape[1:]), str(whole.dtype))
        for start in range(0, len(kept), _CHUNK):
            smaller[start : start + _CHUNK] = whole[kept[start : start + _CHUNK]]
        os.replace(path.with_name(f"{path.stem}_smaller.npy"), path)
