"""Decode pictures into memory-mapped files of the cache on disk, with one folder per key.

An entry holds `<split>_x.npy`, `<split>_y.npy` and `record.json` with the SHA-256 of each. It is moved into the cache
when it is complete. An entry that does not match its record is created again. Two processes that create the same entry
do not disturb each other.
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
from edgekit.core.paths import existing_path, expand_path
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import cache_folder, folder_layout
from edgekit.data.splits import limited_indices
from edgekit.data.types import Keypoints, Pools, ProgressCallback, Split
from edgekit.runner.inputs import picture

FORMAT = 2
_CHUNK = 4096


@dataclass(frozen=True)
class CachedImages:
    """The contents of an entry.

    `corrupt` names each of the `total` pictures that could not be read, with the reason. `keypoints` are those of the
    objects, if they have any.
    """

    splits: dict[str, Split]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    corrupt: list[str]
    total: int
    keypoints: Keypoints | None = None


def open_entry(root: Path, key: str) -> CachedImages | None:
    """Open an entry after checking every byte. Return None if it does not exist or is damaged."""
    folder = root / key
    record = cache_folder.checked_record(folder)
    if record is None:
        return None
    try:
        splits = {
            name: Split(np.load(folder / f"{name}_x.npy", mmap_mode="r"), np.load(folder / f"{name}_y.npy"))
            for name in record["splits"]
        }
        facts = tuple(record["classes"]), tuple(record["notes"]), record["corrupt"], record["total"]
        keypoints = None
        if "keypoints" in record:
            names, skeleton = (record["keypoints"][key] for key in ("names", "skeleton"))
            keypoints = Keypoints(tuple(names), tuple((start, end) for start, end in skeleton))
        return CachedImages(splits, *facts, keypoints)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def load_or_create(folder: str | None, key: str, fill: Callable[[CacheEntry], None]) -> CachedImages:
    """Return the entry of a key in `folder` or the default folder. If it does not exist, `fill` creates it."""
    root = expand_path(folder, "data.cache") if folder else cache_folder.default_folder()
    images = open_entry(root, key)
    if images is None:
        with new_entry(root, key) as entry:
            fill(entry)
        images = open_entry(root, key)
    if images is None:
        raise DataError(f"data.cache: {root} does not keep the files written to it; set data.cache to another folder")
    return images


@contextmanager
def new_entry(root: Path, key: str) -> Iterator[CacheEntry]:
    """Yield an entry to fill, and move it into the cache at the end. After an error, the entry is removed."""
    with cache_folder.new_folder(root, key) as folder:
        yield CacheEntry(folder)


class CacheEntry:
    """An entry that is being created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._splits: list[str] = []

    def array(self, name: str, shape: tuple[int, ...], dtype: str = "uint8") -> np.ndarray:
        """Return a writable array on disk.

        Its space is allocated at once, so that a full disk raises an error and does not kill the process with a signal.
        """
        path = self._folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        if hasattr(os, "posix_fallocate"):  # not on macOS
            with open(path, "r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
        return array

    def finish_split(self, split: str, is_good: np.ndarray, y: np.ndarray) -> None:
        """Close a split, keeping only the samples that are marked as good."""
        path = self._folder / f"{split}_x.npy"
        if not is_good.all():
            self._compact(path, np.flatnonzero(is_good))
        np.save(self._folder / f"{split}_y.npy", y[is_good])
        self._splits.append(split)

    def finish(
        self,
        classes: tuple[str, ...],
        notes: tuple[str, ...],
        corrupt: list[str],
        total: int,
        keypoints: Keypoints | None = None,
    ) -> None:
        """Write the record, after everything that it covers is on disk."""
        record: dict[str, Any] = {"format": FORMAT, "splits": self._splits, "classes": classes, "notes": notes}
        if keypoints is not None:
            record["keypoints"] = keypoints.to_dict()
        cache_folder.write_record(self._folder, {**record, "corrupt": corrupt, "total": total})

    def _compact(self, path: Path, indices: np.ndarray) -> None:
        samples = np.load(path, mmap_mode="r")
        smaller = self.array(f"{path.stem}_smaller", (len(indices), *samples.shape[1:]), str(samples.dtype))
        for start in range(0, len(indices), _CHUNK):
            smaller[start : start + _CHUNK] = samples[indices[start : start + _CHUNK]]
        os.replace(path.with_name(f"{path.stem}_smaller.npy"), path)


_SQUARE = 1.25  # a picture that is distorted by less looks much the same
_BATCH = 256
_BATCH_BYTES = 8 << 20
_LARGE_BYTES = 8 << 10  # below this, threads cost more than they save (measured with pictures of 0.9 to 15 kB)
_SHOWN = 50
DECODER_VERSIONS = [pillow_version, features.version("jpg"), features.version("libjpeg_turbo")]
"""Versions of the libraries that decode pictures. The decoded bytes depend on them."""
UNREADABLE_ERRORS = (OSError, ValueError, SyntaxError, EOFError, zlib.error, Image.DecompressionBombError)
"""The exceptions that Pillow raises for a file that is not a readable picture."""

Source = folder_layout.Source


class ImageFolderOptions(Protocol):
    """The options of `edgekit.data.sources.image_folder` that determine how pictures are found and decoded."""

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
    """Return the pools of `edgekit.data.sources.image_folder.read`."""
    path = existing_path(config.path, "data.path")
    with folder_layout.open_source(path) as source:

        def fill(entry: CacheEntry) -> None:
            layout = _limited(folder_layout.read_layout(source, path.name, folder_layout.PICTURES), config)
            _decode(source, layout, config, entry, progress)

        images = load_or_create(config.cache, _key(config, source), fill)
    check_corrupt(images.corrupt, images.total, config.max_corrupt_fraction, path.name)
    return Pools(
        images.splits["train"],
        images.splits.get("validation"),
        images.splits.get("test"),
        images.classes,
        "image",
        (*images.notes, *corrupt_notes(images.corrupt, images.total)),
        input_path=tuple(config.input_path),
    )


def _key(config: ImageFolderOptions, source: Source) -> str:
    """Return the digest of everything that determines the decoded bytes, including the decoder's version."""
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


def _limited(layout: folder_layout.FolderLayout, config: ImageFolderOptions) -> folder_layout.FolderLayout:
    indices_by_split = limited_indices(layout.labels, config.limit, config.split_seed)
    if not indices_by_split:
        return layout
    names = {split: [layout.names[split][index] for index in indices] for split, indices in indices_by_split.items()}
    labels = {split: layout.labels[split][indices] for split, indices in indices_by_split.items()}
    return folder_layout.FolderLayout(layout.classes, names, labels, layout.notes)


def _decode(
    source: Source,
    layout: folder_layout.FolderLayout,
    config: ImageFolderOptions,
    entry: CacheEntry,
    progress: ProgressCallback | None,
) -> None:
    total, done = sum(map(len, layout.names.values())), 0
    corrupt: list[str] = []
    changes = PictureChanges(config)
    for split, names in layout.names.items():
        x = entry.array(f"{split}_x", (len(names), config.size, config.size, config.channels))
        is_good = np.ones(len(names), bool)
        for index, sample in enumerate(_pictures(source, names, changes)):
            if isinstance(sample, str):
                corrupt.append(f"{names[index]} ({sample})")
                is_good[index] = False
            else:
                x[index] = sample
            done += 1
            if progress and (done % _BATCH == 0 or done == total):
                progress(done, total)
        entry.finish_split(split, is_good, layout.labels[split])
    entry.finish(layout.classes, (*layout.notes, *changes.notes()), corrupt, total)


def _pictures(source: Source, names: list[str], changes: PictureChanges) -> Iterator[np.ndarray | str]:
    """Yield samples in the order of `names`, or the reason why a picture cannot be read."""

    def one(data: bytes | str) -> np.ndarray | str:
        return data if isinstance(data, str) else decoded_sample(data, changes)

    return decoded_in_order((_bytes(source, name) for name in names), one)


def decoded_in_order(
    contents: Iterator[bytes | str], decode: Callable[[bytes | str], np.ndarray | str]
) -> Iterator[np.ndarray | str]:
    """Yield the result of `decode` for each content, in order. Large contents are decoded on all cores.

    Only a few results are in memory at a time.
    """
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        while batch := list(_batch(contents)):
            large = sum(map(len, batch)) > _LARGE_BYTES * len(batch)
            yield from threads.map(decode, batch) if large else map(decode, batch)
            batch.clear()  # otherwise it would stay in memory beside the next one


def _batch(contents: Iterator[bytes | str]) -> Iterator[bytes | str]:
    batch_bytes = 0
    for content in itertools.islice(contents, _BATCH):
        yield content
        if (batch_bytes := batch_bytes + len(content)) >= _BATCH_BYTES:
            return


def _bytes(source: Source, name: str) -> bytes | str:
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        return unreadable_reason(error)


class PictureChanges:
    """Counts pictures that were stretched and pictures that were turned, for the notes."""

    def __init__(self, config: ImageFolderOptions) -> None:
        self.steps, self._fit, self._turns = config.input_path, config.fit, config.orientation == "apply"
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._turned = 0

    def record(self, image: Image.Image) -> None:
        """Count a picture that was opened but not yet changed."""
        self._sizes[image.size] += 1
        self._turned += self._turns and picture.orientation(image) in picture.TRANSPOSITIONS

    def notes(self) -> list[str]:
        """Return a note on stretched pictures and one on turned pictures. Pictures that were only resized need none."""
        odd = Counter({size: count for size, count in self._sizes.items() if max(size) > _SQUARE * min(size)})
        notes = []
        if odd and self._fit == "stretch":
            (width, height), count = odd.most_common(1)[0]
            notes.append(
                f"{odd.total()} of {self._sizes.total()} pictures are not square ({count} of {width}×{height}) and are "
                "stretched to one; data.fit: crop keeps their proportions"
            )
        if self._turned:
            notes.append(f"turned {self._turned} pictures upright, as their EXIF tags say")
        return notes


def decoded_sample(data: bytes, changes: PictureChanges) -> np.ndarray | str:
    """Decode a picture's bytes, or return the reason why it cannot be read."""
    try:
        with Image.open(io.BytesIO(data), formats=picture.FORMATS) as image:
            problem = picture.unsupported_reason(image)
            if problem:
                return problem
            changes.record(image)
            return picture.decode(image, changes.steps)
    except UNREADABLE_ERRORS as error:
        return unreadable_reason(error)


def unreadable_reason(error: Exception) -> str:
    """Return the reason why a picture cannot be read, with the same words in every run."""
    # Pillow's message for an unknown file ends with the address of a buffer, which differs from run to run.
    text = str(error).split(" <_io")[0]
    return text or type(error).__name__


def check_corrupt(corrupt: list[str], total: int, max_fraction: float, origin: str, what: str = "pictures") -> None:
    """Raise DataError if the share of pictures that cannot be read is larger than allowed."""
    if len(corrupt) > max_fraction * total:
        raise DataError(
            f"{origin}: {len(corrupt)} of {total} {what} cannot be read, more than data.max_corrupt_fraction "
            f"{max_fraction}; repair them or raise the limit; the first: {'; '.join(corrupt[:5])}"
        )


def corrupt_notes(corrupt: list[str], total: int, what: str = "pictures") -> list[str]:
    """Return a list with a note on the skipped pictures, or an empty list if none was skipped."""
    more = f"; and {len(corrupt) - _SHOWN} more" if len(corrupt) > _SHOWN else ""
    note = f"skipped {len(corrupt)} of {total} {what} that cannot be read: {'; '.join(corrupt[:_SHOWN])}{more}"
    return [note] if corrupt else []
