"""Decode the samples of WebDataset shards one after another into the cache, and map them from there.

The samples are therefore never all in memory.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest, sha256_file, write_json
from edgekit.core.paths import expand_path, file_stamp
from edgekit.core.source_code import REPORTING, code_digest
from edgekit.data import image_cache, shards
from edgekit.data.cache_folder import default_folder
from edgekit.data.image_cache import FORMAT as CACHE_FORMAT
from edgekit.data.image_cache import CacheEntry, PictureChanges, decoded_in_order, load_or_create
from edgekit.data.shards import SampleSelection, ShardIndex, ShardReader
from edgekit.data.splits import limited_indices
from edgekit.data.types import Kind, Pools, ProgressCallback
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav, windows

FORMAT = 1
PROGRESS_STEP = 256
EXTENSIONS = {"image": ("jpg", "jpeg", "png", "webp"), "audio": ("wav",), "vector": ("npy",)}
SAMPLE_NOUNS = {"image": "picture", "audio": "sound", "vector": "array"}
VECTOR_DTYPES = ["float16", "float32", "float64"]

Decode = Callable[[bytes], "np.ndarray | str"]


class ShardOptions(Protocol):
    """The options of `edgekit.data.sources.webdataset`."""

    path: str
    kind: Any
    member: str | None
    label: str
    classes: Any
    size: int
    channels: Any
    fit: Any
    orientation: Any
    rate_hz: int
    max_corrupt_fraction: float
    cache: str | None
    limit: int | None
    split_seed: int

    @property
    def raw_shape(self) -> tuple[int, ...] | None: ...

    @property
    def input_path(self) -> list[dict[str, Any]]: ...


def shard_pools(config: ShardOptions, progress: ProgressCallback | None = None) -> Pools:
    """Return the pools of `edgekit.data.sources.webdataset.read`."""
    files = shards.find_shards(config.path, "data.path")

    def fill(entry: CacheEntry) -> None:
        _fill(config, files, entry, progress)

    images = load_or_create(config.cache, _key(config, files), fill)
    plural = f"{SAMPLE_NOUNS[config.kind]}s"
    origin = Path(config.path).name
    image_cache.check_corrupt(images.corrupt, images.total, config.max_corrupt_fraction, origin, plural)
    steps = config.input_path
    if config.kind == "vector":  # the device accepts all dtypes that vectors in shards may have
        shape = list(images.splits["train"].x.shape[1:])
        steps = [{"step": "read_array", "dtypes": VECTOR_DTYPES, "shape": shape}]
    kind: Kind = config.kind
    return Pools(
        images.splits["train"],
        images.splits.get("validation"),
        images.splits.get("test"),
        images.classes,
        kind,
        (*images.notes, *image_cache.corrupt_notes(images.corrupt, images.total, plural)),
        config.rate_hz if kind == "audio" else None,
        input_path=tuple(steps),
    )


def _key(config: ShardOptions, files: dict[str, list[Path]]) -> str:
    """Return the digest of everything that determines the decoded bytes, including the decoder's version."""
    root = expand_path(config.cache, "data.cache") if config.cache else default_folder()
    return digest(
        {
            "format": [FORMAT, CACHE_FORMAT],
            "content": {split: [[path.name, _sha256(root, path)] for path in paths] for split, paths in files.items()},
            "options": [config.kind, config.member, config.label, config.classes, config.raw_shape],
            "input_path": config.input_path,
            "code": code_digest(__name__, without=REPORTING),
            "limit": config.limit,
            "seed": None if config.limit is None else config.split_seed,
            "pillow": image_cache.DECODER_VERSIONS,
        }
    )


def _sha256(root: Path, path: Path) -> str:
    """Return the digest of a shard. It is cached as long as the file system reports the shard as unchanged."""
    note_path = root / "digests" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()}.json"
    try:
        current_stamp = file_stamp(path)
        try:
            note = json.loads(note_path.read_text(encoding="utf-8"))
            if note["stamp"] == current_stamp:
                return str(note["sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        sha256 = sha256_file(path)
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read ({error.strerror or error}); check its permissions") from None
    try:
        note_path.parent.mkdir(parents=True, exist_ok=True)
        write_json(note_path, {"stamp": current_stamp, "sha256": sha256})
    except OSError:  # the digest is then computed again the next time
        pass
    return sha256


def _fill(
    config: ShardOptions, files: dict[str, list[Path]], entry: CacheEntry, progress: ProgressCallback | None
) -> None:
    selection = SampleSelection(
        (config.member,) if config.member else EXTENSIONS[config.kind], SAMPLE_NOUNS[config.kind], config.label
    )
    index_by_split, labels, classes = shards.read_index(files, selection, config.classes)
    limited = limited_indices(labels, config.limit, config.split_seed)
    order = {split: limited.get(split, np.arange(len(each))) for split, each in index_by_split.items()}
    for split in order.keys() - {"train"}:  # train is shuffled when it is divided
        # any prefix of these splits must be representative as well
        order[split] = np.random.default_rng(0).permutation(order[split])
    total, done, corrupt = sum(map(len, order.values())), 0, list[str]()
    changes = PictureChanges(config)
    decode = _decoder(config, changes)
    first = _first(index_by_split["train"], order["train"], decode)
    for split, places in order.items():
        x = entry.array(f"{split}_x", (len(places), *first.shape), str(first.dtype))
        is_good = np.ones(len(places), bool)
        for row, sample in enumerate(_samples(index_by_split[split], places, decode)):
            if isinstance(sample, str):
                corrupt.append(f"{index_by_split[split].describe(int(places[row]))} ({sample})")
                is_good[row] = False
            elif sample.shape != first.shape:
                raise DataError(
                    f"{index_by_split[split].describe(int(places[row]))}: an array of shape {sample.shape}, but the "
                    f"first sample of train has {first.shape}; give all samples the same shape"
                )
            else:
                x[row] = sample
            done += 1
            if progress and (done % PROGRESS_STEP == 0 or done == total):
                progress(done, total)
        entry.finish_split(split, is_good, labels[split][places])
    entry.finish(classes, tuple(changes.notes()), corrupt, total)


def _samples(index: ShardIndex, places: np.ndarray, decode: Decode) -> Iterator[np.ndarray | str]:
    with ShardReader() as reader:
        contents: Iterator[bytes | str] = (index.content(place, reader) for place in places.tolist())
        yield from decoded_in_order(
            contents, lambda content: decode(content) if isinstance(content, bytes) else content
        )


def _first(index: ShardIndex, places: np.ndarray, decode: Decode) -> np.ndarray:
    """Return the first sample of train that can be read, which determines the shape of all samples."""
    reasons = []
    for sample in _samples(index, places[:PROGRESS_STEP], decode):
        if not isinstance(sample, str):
            return sample
        reasons.append(sample)
    raise DataError(
        f"{index.describe(int(places[0]))}: cannot be read ({reasons[0]}), and neither can the samples after it; "
        f"repair them"
    )


def _decoder(config: ShardOptions, changes: PictureChanges) -> Decode:
    if config.kind == "image":
        return lambda content: image_cache.decoded_sample(content, changes)
    return _vector if config.kind == "vector" else lambda content: _sound(content, config)


def _vector(content: bytes) -> np.ndarray | str:
    try:
        vector = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # for a damaged header, NumPy passes on any error of Python's parser
        return image_cache.unreadable_reason(error)
    if not isinstance(vector, np.ndarray) or vector.ndim != 1 or vector.dtype.name not in VECTOR_DTYPES:
        return "not an array of floats with one axis"
    with np.errstate(over="ignore"):  # a too large double becomes infinite, which is reported later with its position
        return vector.astype(np.float32)


def _sound(content: bytes, config: ShardOptions) -> np.ndarray | str:
    steps, shape = config.input_path, config.raw_shape
    assert shape is not None
    try:
        audio, _ = wav.decode(
            "a sound", content, wav.AudioSpec(shape[0], config.rate_hz, tuple(steps), "the config asks for")
        )
    except InputError as error:
        return str(error)
    return next(windows.cut_windows(audio, next(step for step in steps if step["step"] == "windows")))
