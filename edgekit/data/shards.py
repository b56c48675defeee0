"""Read WebDataset shards: tar files whose members belong together by key, such as `0001.jpg` and `0001.cls`.

The key of a member is its name up to the first dot after the last slash; the rest is its extension. The members of one
sample are adjacent. Only headers and labels are read when a shard is indexed. The bytes of a sample are read later, at
their position in the shard.
"""

from __future__ import annotations

import json
import math
import re
import tarfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgekit.core.config import shortened_repr
from edgekit.core.errors import DataError
from edgekit.core.paths import expand_path
from edgekit.core.tasks.labels import quote_names
from edgekit.data.folder_layout import SPLITS
from edgekit.runner.errors import bounded_recursion

LARGEST_LABEL_BYTES = 1 << 20
BLOCK = 512
MAX_SHARDS = 100_000
"""Largest number of shards that a pattern with braces can name."""
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


@dataclass(frozen=True)
class ShardMember:
    """The position of a member's bytes in its shard."""

    offset: int
    size: int


@dataclass(frozen=True)
class ShardSample:
    """A sample: its key, and its members by their extensions in lower case."""

    key: str
    members: dict[str, ShardMember]


def find_shards(text: str, key: str) -> dict[str, list[Path]]:
    """Return the shards of each split. `text` is a folder or a pattern such as `train-{000..099}.tar` or `*.tar`.

    A shard belongs to the split whose name appears as a word in the shard's path, as in `cats-val-003.tar` or
    `test/003.tar`. If no shard's path contains such a word, all of them belong to train.
    """
    path = expand_path(text, key)
    folder, files = _matching_files(path)
    if not files:
        compressed = [
            each.name for each in (folder.rglob("*") if folder.is_dir() else ()) if each.name.endswith(_COMPRESSED)
        ]
        if compressed:
            raise DataError(
                f"{key}: {compressed[0]} is compressed; unpack it to .tar, so that samples can be found in it"
            )
        raise DataError(f"{key}: no .tar at {path}; name a folder of shards, or a pattern like train-{{000..099}}.tar")
    if irregular := [file for file in files if not file.is_file()]:  # reading a pipe or a device would not end
        raise DataError(
            f"{key}: {printable_name(irregular[0].name)} is not a regular file; remove it, or use a pattern without it"
        )
    return _by_split(folder, files, key)


def _matching_files(path: Path) -> tuple[Path, list[Path]]:
    if path.is_dir():
        return path, sorted(path.rglob("*.tar"))
    if (count := _name_count(str(path))) > MAX_SHARDS:
        raise DataError(f"data.path: {path.name} names {count:,} shards; name at most {MAX_SHARDS:,}")
    names = _expanded(str(path))
    files: list[Path] = []
    for name in names:
        if "*" in name or "?" in name:
            first = next(index for index, part in enumerate(Path(name).parts) if "*" in part or "?" in part)
            base = Path(*Path(name).parts[:first])
            files += sorted(each for each in base.glob(str(Path(*Path(name).parts[first:]))) if each.suffix == ".tar")
        elif Path(name).is_file():
            files.append(Path(name))
        elif len(names) > 1:
            raise DataError(f"data.path: {Path(name).name} does not exist, but the pattern {path.name} names it")
    if len(files) == 1 and files[0].name.endswith(_COMPRESSED):
        raise DataError(f"data.path: {path.name} is compressed; unpack it to .tar, so that samples can be found in it")
    return path.parent, files


def _name_count(text: str) -> int:
    """Return the number of names that a pattern with braces expands to."""
    return math.prod(max(0, int(last) - int(first) + 1) for first, last in _BRACES.findall(text))


def _expanded(text: str) -> list[str]:
    """Return all names that a pattern with braces stands for: `{000..002}` stands for 000, 001 and 002."""
    match = _BRACES.search(text)
    if not match:
        return [text]
    first, last = match.groups()
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return [name for number in numbers for name in _expanded(text[: match.start()] + number + text[match.end() :])]


def _by_split(folder: Path, files: list[Path], key: str) -> dict[str, list[Path]]:
    split_of_file = {file: _split_of(folder, file) for file in files}
    unassigned = [file for file, split in split_of_file.items() if split is None]
    if len(unassigned) == len(files):
        return {"train": files}
    if unassigned:
        raise DataError(
            f"{key}: {unassigned[0].name} names no split, but others do; put train, validation or test in its name"
        )
    by_split = {
        split: [file for file, file_split in split_of_file.items() if file_split == split]
        for split in dict.fromkeys(SPLITS.values())
    }
    if not by_split["train"]:
        raise DataError(
            f"{key}: no shard of the split train among {len(files)}; put train in the names of some of them"
        )
    return {split: split_files for split, split_files in by_split.items() if split_files}


def _split_of(folder: Path, file: Path) -> str | None:
    """Return the split that the file's path names, or None. Raises DataError if it names two different splits."""
    relative = file.relative_to(folder) if file.is_relative_to(folder) else Path(file.name)
    words = re.split(r"[^a-z]+", str(relative.with_suffix("")).lower())
    splits = sorted({SPLITS[word] for word in words if word in SPLITS})
    if len(splits) > 1:
        raise DataError(f"{relative}: names the splits {' and '.join(splits)}; keep one of them in its name")
    return splits[0] if splits else None


def printable_name(name: str) -> str:
    """Make a name from a shard safe for messages: one line, without characters that a terminal interprets."""
    return repr(name)[1:-1]


def shard_samples(shard: Path) -> Iterator[ShardSample]:
    """Yield the samples of a shard in order.

    Raises
    ------
    DataError
        The shard is truncated or damaged, or the same key occurs twice.
    """
    seen_keys: set[str] = set()
    key, members = "", dict[str, ShardMember]()
    for name, member in _members(shard):
        member_key, extension = _split_name(name)
        if not extension:  # such a member belongs to no sample, as in the library webdataset
            continue
        if member_key != key:
            if members:
                yield ShardSample(key, members)
            key, members = member_key, {}
            if member_key in seen_keys:
                raise DataError(f"{shard.name}: two samples have the key {member_key!r}; give each sample its own key")
            seen_keys.add(member_key)
        if extension in members:
            raise DataError(f"{shard.name}: two samples have the key {key!r}; give each sample its own key")
        members[extension] = member
    if members:
        yield ShardSample(key, members)


class ShardReader(AbstractContextManager["ShardReader"]):
    """Reads members with one shard open at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._stream: BinaryIO | None = None

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def read(self, shard: Path, member: ShardMember) -> bytes:
        """Return the bytes of a member. Raises DataError if the shard has become shorter or cannot be read."""
        try:
            if self._path != shard or self._stream is None:
                self.__exit__()
                self._path, self._stream = shard, open(shard, "rb")  # noqa: SIM115 - closed by __exit__
            self._stream.seek(member.offset)
            data = self._stream.read(member.size)
        except OSError as error:
            raise DataError(
                f"{shard.name}: cannot be read ({error.strerror or error}); check its permissions"
            ) from None
        if len(data) < member.size:
            raise DataError(f"{shard.name}: became shorter while it was being read; start again when it is complete")
        return data

    def label(self, shard: Path, sample: ShardSample, extension: str) -> bytes:
        """Return the bytes of the member that holds a label. Raises DataError if it does not exist or is too large."""
        member = sample.members.get(extension)
        if member is None:
            listed = printable_name(", ".join(f".{each}" for each in sorted(sample.members)))
            raise DataError(
                f"{shard.name}: sample {sample.key!r} has no label .{extension}, only {listed}; write one, or name the "
                "member that holds it in data.label"
            )
        if member.size > LARGEST_LABEL_BYTES:
            label_name = printable_name(f"{sample.key}.{extension}")
            raise DataError(f"{shard.name}: {label_name} has {member.size:,} bytes; give a short label")
        return self.read(shard, member)


def _split_name(name: str) -> tuple[str, str]:
    """Return key and extension of a member's name."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return folder + slash + stem, extension.lower()


def _members(shard: Path) -> Iterator[tuple[str, ShardMember]]:
    try:
        end = shard.stat().st_size
        with tarfile.open(shard, "r:") as tar:
            while (header := tar.next()) is not None:
                vars(tar)["members"].clear()  # otherwise tarfile keeps every header
                _check_member(shard, header, end)
                if header.isfile() and not header.name.rpartition("/")[2].startswith("."):
                    yield header.name, ShardMember(header.offset_data, header.size)
            _check_end(shard, tar.offset)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{shard.name}: is truncated or not a .tar ({error}); fetch or write it again") from None
    except OSError as error:
        raise DataError(f"{shard.name}: cannot be read ({error.strerror or error}); check its permissions") from None


def _check_member(shard: Path, header: tarfile.TarInfo, end: int) -> None:
    """Raise DataError if a header claims more bytes than the shard has, or describes a sparse file."""
    if header.issparse():
        raise DataError(
            f"{shard.name}: {printable_name(header.name)} is stored as a sparse file; write it without tar's --sparse"
        )
    if not 0 <= header.size <= end - header.offset_data:
        raise DataError(
            f"{shard.name}: is truncated or damaged: {printable_name(header.name)} has {header.size:,} bytes, "
            f"but the shard has {end:,}; fetch or write it again"
        )


def _check_end(shard: Path, offset: int) -> None:
    """Raise DataError if the tar does not end with blocks of zeros, or if anything follows them."""
    with open(shard, "rb") as stream:
        stream.seek(offset)
        end = stream.read(2 * BLOCK)
        if len(end) < BLOCK or any(end[:BLOCK]):
            raise DataError(f"{shard.name}: is truncated or damaged after byte {offset:,}; fetch or write it again")
        rest = (block.strip(b"\0") for block in iter(lambda: stream.read(1 << 20), b""))
        if any(end[BLOCK:]) or any(rest):
            raise DataError(
                f"{shard.name}: has data after its end, as joined archives do; keep each archive in its own file"
            )


Label = int | str
MAX_LABEL_LENGTH = 200
"""Largest number of characters in the name of a class."""


@dataclass(frozen=True)
class SampleSelection:
    """The members of a sample that are read: the one with one of the `extensions`, and the one with the label.

    `label` is `cls` or `json.KEY`. `noun` is the word for a sample in messages.
    """

    extensions: tuple[str, ...]
    noun: str
    label: str


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The position of each sample of one split, in the order of its shards, and a code for each sample's label.

    A sample lies at `offset` in the shard with the number `shard` and has `size` bytes. Labels are coded by numbers in
    the order in which they are first read.
    """

    files: list[Path]
    shard: array[int] = field(default_factory=lambda: array("i"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.code)

    def content(self, index: int, reader: ShardReader) -> bytes:
        """Return the bytes of a sample."""
        return reader.read(self.files[self.shard[index]], ShardMember(self.offset[index], self.size[index]))

    def describe(self, index: int) -> str:
        """Return the shard and the key of a sample for messages. The headers of the shard are read to find the key."""
        path = self.files[self.shard[index]]
        for sample in shard_samples(path):
            if any(member.offset == self.offset[index] for member in sample.members.values()):
                return f"{path.name}: {printable_name(sample.key)}"
        return path.name


def read_index(files: dict[str, list[Path]], selection: SampleSelection, names: Sequence[str] | None) -> tuple[
    dict[str, ShardIndex], dict[str, np.ndarray], tuple[str, ...]
]:  # fmt: skip
    """Return the samples of each split, their labels (n,) int64, and the names of the classes.

    Labels that are integers are indices into `names`; if `names` is None, each distinct integer is a class of its own,
    in ascending order.

    Raises
    ------
    DataError
        A shard is damaged or incomplete, or a label is not valid.
    """
    codes: dict[Label, int] = {}
    indexes = {split: _index_split(split_files, selection, codes) for split, split_files in files.items()}
    empty = next((split for split, each in indexes.items() if not len(each)), None)
    if empty:
        shards = files[empty]
        which = f"none of the {len(shards)} shards contains a sample; the first shard is {shards[0].name}"
        raise DataError(f"{empty}: {which if len(shards) > 1 else f'{shards[0].name} contains no sample'}")
    classes, order = _classes(list(codes), names)
    labels = {split: order[np.frombuffer(each.code, np.int32)] for split, each in indexes.items()}
    return indexes, labels, classes


def _index_split(files: list[Path], selection: SampleSelection, codes: dict[Label, int]) -> ShardIndex:
    index = ShardIndex(files)
    with ShardReader() as reader:
        for number, path in enumerate(files):
            for sample in shard_samples(path):
                member = _select_member(path, sample, selection)
                index.shard.append(number)
                index.offset.append(member.offset)
                index.size.append(member.size)
                index.code.append(codes.setdefault(_label(path, sample, selection.label, reader), len(codes)))
    return index


def _select_member(path: Path, sample: ShardSample, selection: SampleSelection) -> ShardMember:
    fitting = [each for each in selection.extensions if each in sample.members]
    if len(fitting) == 1:
        return sample.members[fitting[0]]
    if fitting:
        raise DataError(
            f"{path.name}: sample {sample.key!r} has several {selection.noun}s, .{' and .'.join(fitting)}; "
            "name one of them in data.member"
        )
    listed = printable_name(", ".join(f".{each}" for each in sorted(sample.members)))
    raise DataError(
        f"{path.name}: sample {sample.key!r} has no {selection.noun} (.{', .'.join(selection.extensions)}), only "
        f"{listed}; name its extension in data.member, or remove the sample"
    )


def _label(path: Path, sample: ShardSample, label: str, reader: ShardReader) -> Label:
    """Return the label of a sample, an integer or a name."""
    extension, _, key = label.rpartition(".") if "." in label else (label, "", "")
    where = f"{path.name}: the label of sample {sample.key!r}"
    try:
        value = reader.label(path, sample, extension).decode()
        if key:
            with bounded_recursion():
                value = json.loads(value)[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        expected = f"a JSON object with the key {key!r}" if key else "UTF-8 text"
        raise DataError(f"{where} is not {expected} ({type(error).__name__}: {error}); write it again") from None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, bool) or not isinstance(text, int | str) or text == "":
        raise DataError(f"{where} is {shortened_repr(value)}; give a whole number or a name")
    if isinstance(text, str) and len(text) > MAX_LABEL_LENGTH:
        raise DataError(f"{where} is {shortened_repr(text)}; give a name of at most {MAX_LABEL_LENGTH} characters")
    try:
        return int(text)
    except ValueError:
        return str(text)


def _classes(values: list[Label], names: Sequence[str] | None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the classes, and the class of each code."""
    if names is not None:
        index_of_name = {name: number for number, name in enumerate(names)}
        unknown = [
            value
            for value in values
            if (value not in range(len(names)) if _is_integer(value) else value not in index_of_name)
        ]
        if unknown:
            raise DataError(
                f"data.classes: the label {unknown[0]!r} is not among the classes {quote_names(names)}; "
                "list one name for each label in data.classes, in label order starting at 0"
            )
        return tuple(names), np.array(
            [each if _is_integer(each) else index_of_name[str(each)] for each in values], np.int64
        )
    are_integers = all(_is_integer(value) for value in values)
    ordered: list[Label] = sorted(values, key=lambda value: int(value) if are_integers else str(value))
    index_of = {value: number for number, value in enumerate(ordered)}
    return tuple(map(str, ordered)), np.array([index_of[value] for value in values], np.int64)


def _is_integer(value: Label) -> bool:
    return isinstance(value, int)
