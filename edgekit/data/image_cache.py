"""Decoded samples on disk: one folder per key, put in its place whole, opened memory-mapped.

An entry holds `<split>_x.npy`, `<split>_y.npy` and `record.json` with the sha256 of each; an entry that does not
match its record is made anew. Two processes that make the same entry do not disturb each other.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import DataError, ResourceError
from edgekit.core.hashing import sha256_file, write_json
from edgekit.data.paths import expand
from edgekit.data.types import Split

FORMAT = 2
RECORD = "record.json"
_CHUNK = 4096
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class CachedImages:
    """What an entry holds; `corrupt` names each picture out of `total` that could not be read, and why."""

    splits: dict[str, Split]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    corrupt: list[str]
    total: int


def default_folder() -> Path:
    """~/.cache/edgekit, or below XDG_CACHE_HOME where that is set."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "edgekit"


def open_entry(root: Path, key: str) -> CachedImages | None:
    """The entry, every byte of it checked; None if there is none or it is damaged."""
    folder = root / key
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text())
        for name, sha in record["files"].items():
            if sha256_file(folder / name) != sha:
                return None
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
    root = expand(folder, "data.cache") if folder else default_folder()
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
    """A folder to fill, moved to its place at the end; nothing is left of it if that end is not reached."""
    folder = root / f".{key}.{os.getpid()}.tmp"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        folder.mkdir()
        yield Entry(folder)
        _place(folder, root / key)
    except OSError as error:
        raise ResourceError(
            f"data.cache: cannot write to {root} ({error.strerror or error}); free some space there, "
            "or set data.cache to another folder"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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

    def rows(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[np.ndarray]) -> None:
        """A whole array, written part by part, so that nothing of it stays in memory."""
        write_rows(self._folder / f"{name}.npy", shape, dtype, parts)

    def keep(self, split: str, good: np.ndarray, y: np.ndarray) -> None:
        """Close a split: only the samples marked good remain."""
        path = self._folder / f"{split}_x.npy"
        if not good.all():
            self._compact(path, np.flatnonzero(good))
        np.save(self._folder / f"{split}_y.npy", y[good])
        self._splits.append(split)

    def finish(self, classes: tuple[str, ...], notes: tuple[str, ...], corrupt: list[str], total: int) -> None:
        """Write the record, after everything that it vouches for is on disk."""
        files = {}
        for path in sorted(self._folder.glob("*.npy")):
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())
            files[path.name] = sha256_file(path)
        record = {"format": FORMAT, "splits": self._splits, "classes": classes, "notes": notes}
        write_json(self._folder / RECORD, {**record, "corrupt": corrupt, "total": total, "files": files})

    def _compact(self, path: Path, kept: np.ndarray) -> None:
        whole = np.load(path, mmap_mode="r")
        smaller = self.array(f"{path.stem}_smaller", (len(kept), *whole.shape[1:]), str(whole.dtype))
        for start in range(0, len(kept), _CHUNK):
            smaller[start : start + _CHUNK] = whole[kept[start : start + _CHUNK]]
        os.replace(path.with_name(f"{path.stem}_smaller.npy"), path)


def write_rows(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[np.ndarray]) -> None:
    """An .npy file of this shape, written part by part. An error of the disk is an OSError."""
    with open(path, "wb") as stream:
        head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, head)
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)


def _place(folder: Path, final: Path) -> None:
    try:
        os.replace(folder, final)
    except OSError:
        # Something is there: either another process was faster, or it is damaged and gives way.
        if open_entry(final.parent, final.name) is None:
            shutil.rmtree(final)
            os.replace(folder, final)


def _sweep(root: Path) -> None:
    """Remove what killed processes have left."""
    for old in root.glob(".*.tmp"):
        if time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
