"""Decoded pictures on disk: one folder per key, put in its place whole, opened memory-mapped; and their decoding.

An entry holds `<split>_x.npy`, `<split>_y.npy` and `record.json` with the sha256 of each; an entry that does not
match its record is made anew. Two processes that make the same entry do not disturb each other.
"""

from __future__ import annotations

import io
import itertools
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, features
from PIL import __version__ as pillow_version

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import cache_folder, folder_layout
from edgekit.data.paths import existing_path, expand_path
from edgekit.data.splits import limited_indices
from edgekit.data.types import Pools, ProgressCallback, Split
from edgekit.runner.inputs import picture

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


def load_or_create(folder: str | None, key: str, fill: Callable[[CacheEntry], None]) -> CachedImages:
    """The entry of a key, below `folder` or the default one; `fill` makes it where it is not there."""
    root = expand_path(folder, "data.cache") if folder else cache_folder.default_folder()
    found = open_entry(root, key)
    if found is None:
        with new_entry(root, key) as entry:
            fill(entry)
        found = open_entry(root, key)
    if found is None:
        raise DataError(f"data.cache: {root} does not keep what is written there; set data.cache to another folder")
    return found


@contextmanager
def new_entry(root: Path, key: str) -> Iterator[CacheEntry]:
    """An entry to fill, put in its place at the end; nothing is left of it if that end is not reached."""
    with cache_folder.new_folder(root, key) as folder:
        yield CacheEntry(folder)


class CacheEntry:
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

    def finish_split(self, split: str, good: np.ndarray, y: np.ndarray) -> None:
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


_SQUARE = 1.25  # sides of a picture that is squashed by less look much the same
_BATCH = 256
_BATCH_BYTES = 8 << 20
_LARGE_BYTES = 16 << 10  # below, a second thread costs more than it brings (measured on 900-byte pictures)
_SHOWN = 50
DECODER_VERSIONS = [pillow_version, features.version("jpg"), features.version("libjpeg_turbo")]
"""What the decoded bytes depend on besides the pictures."""
UNREADABLE_ERRORS = (OSError, ValueError, SyntaxError, EOFError, zlib.error, Image.DecompressionBombError)
"""What Pillow raises for a picture that is none."""

Source = folder_layout.Source


class ImageFolderOptions(Protocol):
    """How pictures are found and decoded: the options of `edgekit.data.sources.image_folder`."""

    path: str
    size: int
    channels: Any
    fit: Any
    orientation: Any
    max_corrupt_fraction: float
    cache: str | None
    limit: int | None
    split_seed: int

    @property
    def input_path(self) -> list[dict[str, Any]]: ...


def image_pools(config: ImageFolderOptions, progress: ProgressCallback | None = None) -> Pools:
    """See `edgekit.data.sources.image_folder.read`."""
    path = existing_path(config.path, "data.path")
    with folder_layout.open_source(path) as source:

        def fill(entry: CacheEntry) -> None:
            plan = _limited(folder_layout.read_layout(source, path.name, folder_layout.PICTURES), config)
            _decode(source, plan, config, entry, progress)

        found = load_or_create(config.cache, _key(config, source), fill)
    check_corrupt(found.corrupt, found.total, config.max_corrupt_fraction, path.name)
    return Pools(
        found.splits["train"],
        found.splits.get("validation"),
        found.splits.get("test"),
        found.classes,
        "image",
        (*found.notes, *corrupt_notes(found.corrupt, found.total)),
        input_path=tuple(config.input_path),
    )


def _key(config: ImageFolderOptions, source: Source) -> str:
    """Digest of all that decides about the decoded bytes, the decoder's version included."""
    return digest(
        {
            "format": FORMAT,
            "content": source.digest(),
            "input_path": config.input_path,
            "code": code_digest("edgekit.runner.inputs.picture", without=REPORTING),
            "limit": config.limit,
            "seed": None if config.limit is None else config.split_seed,
            "pillow": DECODER_VERSIONS,
        }
    )


def _limited(plan: folder_layout.FolderLayout, config: ImageFolderOptions) -> folder_layout.FolderLayout:
    kept = limited_indices(plan.labels, config.limit, config.split_seed)
    if not kept:
        return plan
    names = {split: [plan.names[split][index] for index in indices] for split, indices in kept.items()}
    labels = {split: plan.labels[split][indices] for split, indices in kept.items()}
    return folder_layout.FolderLayout(plan.classes, names, labels, plan.notes)


def _decode(
    source: Source,
    plan: folder_layout.FolderLayout,
    config: ImageFolderOptions,
    entry: CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    total, done = sum(map(len, plan.names.values())), 0
    corrupt: list[str] = []
    shapes = PictureChanges(config)
    for split, names in plan.names.items():
        x = entry.array(f"{split}_x", (len(names), config.size, config.size, config.channels))
        good = np.ones(len(names), bool)
        for index, found in enumerate(_pictures(source, names, shapes)):
            if isinstance(found, str):
                corrupt.append(f"{names[index]} ({found})")
                good[index] = False
            else:
                x[index] = found
            done += 1
            if progress and (done % _BATCH == 0 or done == total):
                progress(done, total)
        entry.finish_split(split, good, plan.labels[split])
    entry.finish(plan.classes, (*plan.notes, *shapes.notes()), corrupt, total)


def _pictures(source: Source, names: list[str], shapes: PictureChanges) -> Iterator[np.ndarray | str]:
    """Samples in the order of `names`, or why there is none."""

    def one(data: bytes | str) -> np.ndarray | str:
        return data if isinstance(data, str) else decoded_sample(data, shapes)

    return decoded_in_order((_bytes(source, name) for name in names), one)


def decoded_in_order(
    contents: Iterator[bytes | str], one: Callable[[bytes | str], np.ndarray | str]
) -> Iterator[np.ndarray | str]:
    """What `one` makes of each content, in order, large ones on all cores; few contents are held at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        while batch := list(_batch(contents)):
            large = sum(map(len, batch)) > _LARGE_BYTES * len(batch)
            yield from threads.map(one, batch) if large else map(one, batch)
            batch.clear()  # or it would be held beside the next one


def _batch(contents: Iterator[bytes | str]) -> Iterator[bytes | str]:
    taken = 0
    for content in itertools.islice(contents, _BATCH):
        yield content
        if (taken := taken + len(content)) >= _BATCH_BYTES:
            return


def _bytes(source: Source, name: str) -> bytes | str:
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        return unreadable_reason(error)


class PictureChanges:
    """What was done to pictures of other proportions, and to those with a turn: the notes say it."""

    def __init__(self, config: ImageFolderOptions) -> None:
        self.steps, self._fit, self._turns = config.input_path, config.fit, config.orientation == "apply"
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._turned = 0

    def record(self, image: Image.Image) -> None:
        """An opened picture, before anything is done to it."""
        self._sizes[image.size] += 1
        self._turned += self._turns and picture.orientation(image) in picture.TRANSPOSITIONS

    def notes(self) -> list[str]:
        """One line each; none where nothing was changed beyond the size."""
        odd = Counter({size: count for size, count in self._sizes.items() if max(size) > _SQUARE * min(size)})
        notes = []
        if odd and self._fit == "stretch":
            (width, height), count = odd.most_common(1)[0]
            notes.append(
                f"{odd.total()} of {self._sizes.total()} pictures are no squares ({count} of {width}×{height}) and are "
                "squashed into one; data.fit: crop keeps their proportions"
            )
        if self._turned:
            notes.append(f"turned {self._turned} pictures upright, as their EXIF tags say")
        return notes


def decoded_sample(data: bytes, shapes: PictureChanges) -> np.ndarray | str:
    """The sample of a picture's bytes, or why there is none."""
    try:
        with Image.open(io.BytesIO(data), formats=picture.FORMATS) as image:
            problem = picture.unsupported_reason(image)
            if problem:
                return problem
            shapes.record(image)
            return picture.decode(image, shapes.steps)
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)


def unreadable_reason(error: Exception) -> str:
    """Why a picture cannot be read, in the same words in every run."""
    # Pillow's own words for a foreign file end in the address of a buffer, which differs from run to run.
    text = str(error).split(" <_io")[0]
    return text or type(error).__name__


def check_corrupt(corrupt: list[str], total: int, most: float, origin: str, what: str = "pictures") -> None:
    """DataError where more than the share `most` cannot be read."""
    if len(corrupt) > most * total:
        raise DataError(
            f"{origin}: {len(corrupt)} of {total} {what} cannot be read, more than data.max_corrupt_fraction {most}; "
            f"repair them or raise it; the first: {'; '.join(corrupt[:5])}"
        )


def corrupt_notes(corrupt: list[str], total: int, what: str = "pictures") -> list[str]:
    """A note on what was skipped; none where nothing was."""
    more = f"; and {len(corrupt) - _SHOWN} more" if len(corrupt) > _SHOWN else ""
    note = f"skipped {len(corrupt)} of {total} {what} that cannot be read: {'; '.join(corrupt[:_SHOWN])}{more}"
    return [note] if corrupt else []
