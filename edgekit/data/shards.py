"""WebDataset shards: tar files whose members stand together by key, `0001.jpg` and `0001.cls`, read one after another.

The key of a member is its name up to the first dot behind the last slash; the rest is the member's extension. The
members of one sample stand side by side. Only headers and labels are read here; a sample's bytes are found again by
their place in the shard.
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
from edgekit.core.tasks.labels import quote_names
from edgekit.data.folder_layout import SPLITS
from edgekit.data.paths import expand_path
from edgekit.runner.errors import bounded_recursion

LARGEST_LABEL_BYTES = 1 << 20
BLOCK = 512
MAX_SHARDS = 100_000
"""Shards that a pattern with braces may name."""
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


@dataclass(frozen=True)
class ShardMember:
    """Where a member's bytes lie in its shard."""

    offset: int
    size: int


@dataclass(frozen=True)
class ShardSample:
    """A sample: its key and its members by extension, in lower case."""

    key: str
    members: dict[str, ShardMember]


def find_shards(text: str, key: str) -> dict[str, list[Path]]:
    """The shards of each split: of a folder, or of a pattern such as `train-{000..099}.tar` or `*.tar`.

    A shard belongs to the split whose name is a word of its own, as in `cats-val-003.tar` or `test/003.tar`. Where none
    has such a word, all are train.
    """
    path = expand_path(text, key)
    home, files = _listed(path)
    if not files:
        packed = [each.name for each in (home.rglob("*") if home.is_dir() else ()) if each.name.endswith(_COMPRESSED)]
        if packed:
            raise DataError(f"{key}: {packed[0]} is compressed; unpack it to .tar, so that samples can be found in it")
        raise DataError(f"{key}: no .tar at {path}; name a folder of shards, or a pattern as train-{{000..099}}.tar")
    if strange := [file for file in files if not file.is_file()]:  # a pipe or a device would be read without end
        raise DataError(
            f"{key}: {printable_name(strange[0].name)} is no file; take it out, or name a pattern without it"
        )
    return _by_split(home, files, key)


def _listed(path: Path) -> tuple[Path, list[Path]]:
    if path.is_dir():
        return path, sorted(path.rglob("*.tar"))
    if (count := _named(str(path))) > MAX_SHARDS:
        raise DataError(f"data.path: {path.name} names {count:,} shards; name at most {MAX_SHARDS:,}")
    names = _expanded(str(path))
    found: list[Path] = []
    for name in names:
        if "*" in name or "?" in name:
            first = next(place for place, part in enumerate(Path(name).parts) if "*" in part or "?" in part)
            base = Path(*Path(name).parts[:first])
            found += sorted(each for each in base.glob(str(Path(*Path(name).parts[first:]))) if each.suffix == ".tar")
        elif Path(name).is_file():
            found.append(Path(name))
        elif len(names) > 1:
            raise DataError(f"data.path: {Path(name).name} is not there, and the pattern {path.name} names it")
    if len(found) == 1 and found[0].name.endswith(_COMPRESSED):
        raise DataError(f"data.path: {path.name} is compressed; unpack it to .tar, so that samples can be found in it")
    return path.parent, found


def _named(text: str) -> int:
    """How many names a pattern with braces has."""
    return math.prod(max(0, int(last) - int(first) + 1) for first, last in _BRACES.findall(text))


def _expanded(text: str) -> list[str]:
    """Every name of a pattern with braces, `{000..002}`: 000, 001, 002."""
    found = _BRACES.search(text)
    if not found:
        return [text]
    first, last = found.groups()
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return [name for number in numbers for name in _expanded(text[: found.start()] + number + text[found.end() :])]


def _by_split(home: Path, files: list[Path], key: str) -> dict[str, list[Path]]:
    named = {file: _split_of(home, file) for file in files}
    without = [file for file, split in named.items() if split is None]
    if len(without) == len(files):
        return {"train": files}
    if without:
        raise DataError(
            f"{key}: {without[0].name} names no split, and others do; put train, validation or test in its name"
        )
    found = {split: [file for file, mine in named.items() if mine == split] for split in dict.fromkeys(SPLITS.values())}
    if not found["train"]:
        raise DataError(f"{key}: no shard of the split train among {len(files)}; put train in the names of some")
    return {split: mine for split, mine in found.items() if mine}


def _split_of(home: Path, file: Path) -> str | None:
    """The split that a word of the name means; DataError for two."""
    shown = file.relative_to(home) if file.is_relative_to(home) else Path(file.name)
    words = re.split(r"[^a-z]+", str(shown.with_suffix("")).lower())
    meant = sorted({SPLITS[word] for word in words if word in SPLITS})
    if len(meant) > 1:
        raise DataError(f"{shown}: names the splits {' and '.join(meant)}; keep one of them in its name")
    return meant[0] if meant else None


def printable_name(name: str) -> str:
    """A name from a shard as messages show it: on one line, and with nothing that a terminal would obey."""
    return repr(name)[1:-1]


def shard_samples(shard: Path) -> Iterator[ShardSample]:
    """The samples of a shard, in its order; DataError for one that is cut off, damaged, or holds a key twice."""
    seen: set[str] = set()
    key, members = "", dict[str, ShardMember]()
    for name, member in _members(shard):
        mine, extension = _parted(name)
        if not extension:  # as the library webdataset does: it belongs to no sample
            continue
        if mine != key:
            if members:
                yield ShardSample(key, members)
            key, members = mine, {}
            if mine in seen:
                raise DataError(f"{shard.name}: holds two samples of the key {mine!r}; give each sample its own")
            seen.add(mine)
        if extension in members:
            raise DataError(f"{shard.name}: holds two samples of the key {key!r}; give each sample its own")
        members[extension] = member
    if members:
        yield ShardSample(key, members)


class ShardReader(AbstractContextManager["ShardReader"]):
    """Reads members, one shard open at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._stream: BinaryIO | None = None

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def read(self, shard: Path, member: ShardMember) -> bytes:
        """The bytes of a member; DataError where the shard has become shorter or cannot be read."""
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
            raise DataError(f"{shard.name}: has become shorter while it was read; start again when it is whole")
        return data

    def label(self, shard: Path, sample: ShardSample, extension: str) -> bytes:
        """The bytes of the member that holds a label; DataError where it is not there or no label."""
        member = sample.members.get(extension)
        if member is None:
            has = printable_name(", ".join(f".{each}" for each in sorted(sample.members)))
            raise DataError(
                f"{shard.name}: sample {sample.key!r} has no label .{extension}, only {has}; write one, or name the "
                "member that holds it in data.label"
            )
        if member.size > LARGEST_LABEL_BYTES:
            called = printable_name(f"{sample.key}.{extension}")
            raise DataError(f"{shard.name}: {called} has {member.size:,} bytes; give a short label")
        return self.read(shard, member)


def _parted(name: str) -> tuple[str, str]:
    """Key and extension of a member's name."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return folder + slash + stem, extension.lower()


def _members(shard: Path) -> Iterator[tuple[str, ShardMember]]:
    try:
        end = shard.stat().st_size
        with tarfile.open(shard, "r:") as tar:
            while (found := tar.next()) is not None:
                vars(tar)["members"].clear()  # tarfile keeps every header otherwise
                _check_member(shard, found, end)
                if found.isfile() and not found.name.rpartition("/")[2].startswith("."):
                    yield found.name, ShardMember(found.offset_data, found.size)
            _check_end(shard, tar.offset)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{shard.name}: is cut off or no .tar ({error}); fetch or write it again") from None
    except OSError as error:
        raise DataError(f"{shard.name}: cannot be read ({error.strerror or error}); check its permissions") from None


def _check_member(shard: Path, found: tarfile.TarInfo, end: int) -> None:
    """A header may claim anything: bytes that are not there, or bytes that do not stand one behind the other."""
    if found.issparse():
        raise DataError(
            f"{shard.name}: {printable_name(found.name)} is stored with holes; write the shard without tar's --sparse"
        )
    if not 0 <= found.size <= end - found.offset_data:
        raise DataError(
            f"{shard.name}: is cut off or damaged: {printable_name(found.name)} has {found.size:,} bytes there, "
            f"and the shard {end:,}; fetch or write it again"
        )


def _check_end(shard: Path, offset: int) -> None:
    """A tar ends in blocks of zeros, with nothing behind. Without them it was cut off, or a header is damaged."""
    with open(shard, "rb") as stream:
        stream.seek(offset)
        end = stream.read(2 * BLOCK)
        if len(end) < BLOCK or any(end[:BLOCK]):
            raise DataError(f"{shard.name}: is cut off or damaged behind byte {offset:,}; fetch or write it again")
        rest = (block.strip(b"\0") for block in iter(lambda: stream.read(1 << 20), b""))
        if any(end[BLOCK:]) or any(rest):
            raise DataError(f"{shard.name}: goes on behind its end, as joined archives do; keep each in its own file")


Label = int | str
MAX_LABEL_LENGTH = 200
"""Characters of a class's name."""


@dataclass(frozen=True)
class SampleSelection:
    """Which member is the sample, one of `extensions`, and which the label: `cls`, or `json.KEY`."""

    extensions: tuple[str, ...]
    noun: str
    label: str


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The samples of one split, in the order of its shards: their places, and codes of their labels (n,)."""

    files: list[Path]
    shard: array[int] = field(default_factory=lambda: array("i"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.code)

    def content(self, place: int, reader: ShardReader) -> bytes:
        """The bytes of a sample."""
        return reader.read(self.files[self.shard[place]], ShardMember(self.offset[place], self.size[place]))

    def describe(self, place: int) -> str:
        """Shard and key of a sample, for messages: the shard is read for it once more."""
        path = self.files[self.shard[place]]
        for sample in shard_samples(path):
            if any(member.offset == self.offset[place] for member in sample.members.values()):
                return f"{path.name}: {printable_name(sample.key)}"
        return path.name


def read_index(files: dict[str, list[Path]], wanted: SampleSelection, names: Sequence[str] | None) -> tuple[
    dict[str, ShardIndex], dict[str, np.ndarray], tuple[str, ...]
]:  # fmt: skip
    """The samples and the labels (n,) int64 of each split, and the classes; DataError for a shard that is not whole.

    Whole numbers are places in `names`; without names they are classes by themselves, in their order.
    """
    codes: dict[Label, int] = {}
    found = {split: _split(mine, wanted, codes) for split, mine in files.items()}
    empty = next((split for split, each in found.items() if not len(each)), None)
    if empty:
        raise DataError(f"{empty}: no sample in {len(files[empty])} shards, the first is {files[empty][0].name}")
    classes, order = _classes(list(codes), names)
    labels = {split: order[np.frombuffer(each.code, np.int32)] for split, each in found.items()}
    return found, labels, classes


def _split(files: list[Path], wanted: SampleSelection, codes: dict[Label, int]) -> ShardIndex:
    found = ShardIndex(files)
    with ShardReader() as reader:
        for number, path in enumerate(files):
            for sample in shard_samples(path):
                member = _chosen(path, sample, wanted)
                found.shard.append(number)
                found.offset.append(member.offset)
                found.size.append(member.size)
                found.code.append(codes.setdefault(_label(path, sample, wanted.label, reader), len(codes)))
    return found


def _chosen(path: Path, sample: ShardSample, wanted: SampleSelection) -> ShardMember:
    fitting = [each for each in wanted.extensions if each in sample.members]
    if len(fitting) == 1:
        return sample.members[fitting[0]]
    if fitting:
        raise DataError(
            f"{path.name}: sample {sample.key!r} has several {wanted.noun}s, .{' and .'.join(fitting)}; "
            "name one of them in data.member"
        )
    has = printable_name(", ".join(f".{each}" for each in sorted(sample.members)))
    raise DataError(
        f"{path.name}: sample {sample.key!r} has no {wanted.noun} (.{', .'.join(wanted.extensions)}), only {has}; "
        "name its extension in data.member, or take the sample out"
    )


def _label(path: Path, sample: ShardSample, label: str, reader: ShardReader) -> Label:
    """The label of a sample: a whole number, or a name."""
    extension, _, key = label.rpartition(".") if "." in label else (label, "", "")
    where = f"{path.name}: the label of sample {sample.key!r}"
    try:
        value = reader.label(path, sample, extension).decode()
        if key:
            with bounded_recursion():
                value = json.loads(value)[key]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        wanted = f"a JSON object with the key {key!r}" if key else "a text in UTF-8"
        raise DataError(f"{where} is not {wanted} ({type(error).__name__}: {error}); write it anew") from None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, bool) or not isinstance(text, int | str) or text == "":
        raise DataError(f"{where} is {shortened_repr(value)}; give a whole number or a name")
    if isinstance(text, str) and len(text) > MAX_LABEL_LENGTH:
        raise DataError(f"{where} is {shortened_repr(text)}; give a name of at most {MAX_LABEL_LENGTH} characters")
    try:
        return int(text)
    except ValueError:
        return str(text)


def _classes(found: list[Label], names: Sequence[str] | None) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the classes, and the class of each code."""
    if names is not None:
        place = {name: number for number, name in enumerate(names)}
        strange = [
            value for value in found if (value not in range(len(names)) if _whole(value) else value not in place)
        ]
        if strange:
            raise DataError(
                f"data.classes: a label is {strange[0]!r}, and there are {len(names)} classes, {quote_names(names)}; "
                "give each label its name, in the order of the numbers from 0"
            )
        return tuple(names), np.array([each if _whole(each) else place[str(each)] for each in found], np.int64)
    numbers = all(_whole(value) for value in found)
    ordered: list[Label] = sorted(found, key=lambda value: int(value) if numbers else str(value))
    place_of = {value: number for number, value in enumerate(ordered)}
    return tuple(map(str, ordered)), np.array([place_of[value] for value in found], np.int64)


def _whole(value: Label) -> bool:
    return isinstance(value, int)
