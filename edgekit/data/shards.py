"""WebDataset shards: tar files whose members stand together by key, `0001.jpg` and `0001.cls`, read one after another.

The key of a member is its name up to the first dot behind the last slash; the rest is the member's extension. The
members of one sample stand side by side. Only headers and labels are read here; a sample's bytes are found again by
their place in the shard.
"""

from __future__ import annotations

import math
import re
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edgekit.core.errors import DataError
from edgekit.data.folder_layout import SPLITS
from edgekit.data.paths import expand

LARGEST_LABEL_BYTES = 1 << 20
BLOCK = 512
MOST_NAMED = 100_000
"""Shards that a pattern with braces may name."""
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


@dataclass(frozen=True)
class Member:
    """Where a member's bytes lie in its shard."""

    offset: int
    size: int


@dataclass(frozen=True)
class Sample:
    """A sample: its key and its members by extension, in lower case."""

    key: str
    members: dict[str, Member]


def find(text: str, key: str) -> dict[str, list[Path]]:
    """The shards of each split: of a folder, or of a pattern such as `train-{000..099}.tar` or `*.tar`.

    A shard belongs to the split whose name is a word of its own, as in `cats-val-003.tar` or `test/003.tar`. Where none
    has such a word, all are train.
    """
    path = expand(text, key)
    home, files = _listed(path)
    if not files:
        packed = [each.name for each in (home.rglob("*") if home.is_dir() else ()) if each.name.endswith(_COMPRESSED)]
        if packed:
            raise DataError(f"{key}: {packed[0]} is compressed; unpack it to .tar, so that samples can be found in it")
        raise DataError(f"{key}: no .tar at {path}; name a folder of shards, or a pattern as train-{{000..099}}.tar")
    if strange := [file for file in files if not file.is_file()]:  # a pipe or a device would be read without end
        raise DataError(f"{key}: {shown(strange[0].name)} is no file; take it out, or name a pattern without it")
    return _by_split(home, files, key)


def _listed(path: Path) -> tuple[Path, list[Path]]:
    if path.is_dir():
        return path, sorted(path.rglob("*.tar"))
    if (count := _named(str(path))) > MOST_NAMED:
        raise DataError(f"data.path: {path.name} names {count:,} shards; name at most {MOST_NAMED:,}")
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


def shown(name: str) -> str:
    """A name from a shard as messages show it: on one line, and with nothing that a terminal would obey."""
    return repr(name)[1:-1]


def samples(shard: Path) -> Iterator[Sample]:
    """The samples of a shard, in its order; DataError for one that is cut off, damaged, or holds a key twice."""
    seen: set[str] = set()
    key, members = "", dict[str, Member]()
    for name, member in _members(shard):
        mine, extension = _parted(name)
        if not extension:  # as the library webdataset does: it belongs to no sample
            continue
        if mine != key:
            if members:
                yield Sample(key, members)
            key, members = mine, {}
            if mine in seen:
                raise DataError(f"{shard.name}: holds two samples of the key {mine!r}; give each sample its own")
            seen.add(mine)
        if extension in members:
            raise DataError(f"{shard.name}: holds two samples of the key {key!r}; give each sample its own")
        members[extension] = member
    if members:
        yield Sample(key, members)


class Reader(AbstractContextManager["Reader"]):
    """Reads members, one shard open at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._stream: BinaryIO | None = None

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def read(self, shard: Path, member: Member) -> bytes:
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

    def label(self, shard: Path, sample: Sample, extension: str) -> bytes:
        """The bytes of the member that holds a label; DataError where it is not there or no label."""
        member = sample.members.get(extension)
        if member is None:
            has = shown(", ".join(f".{each}" for each in sorted(sample.members)))
            raise DataError(
                f"{shard.name}: sample {sample.key!r} has no label .{extension}, only {has}; write one, or name the "
                "member that holds it in data.label"
            )
        if member.size > LARGEST_LABEL_BYTES:
            called = shown(f"{sample.key}.{extension}")
            raise DataError(f"{shard.name}: {called} has {member.size:,} bytes; give a short label")
        return self.read(shard, member)


def _parted(name: str) -> tuple[str, str]:
    """Key and extension of a member's name."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return folder + slash + stem, extension.lower()


def _members(shard: Path) -> Iterator[tuple[str, Member]]:
    try:
        end = shard.stat().st_size
        with tarfile.open(shard, "r:") as tar:
            while (found := tar.next()) is not None:
                vars(tar)["members"].clear()  # tarfile keeps every header otherwise
                _check_member(shard, found, end)
                if found.isfile() and not found.name.rpartition("/")[2].startswith("."):
                    yield found.name, Member(found.offset_data, found.size)
            _check_end(shard, tar.offset)
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{shard.name}: is cut off or no .tar ({error}); fetch or write it again") from None
    except OSError as error:
        raise DataError(f"{shard.name}: cannot be read ({error.strerror or error}); check its permissions") from None


def _check_member(shard: Path, found: tarfile.TarInfo, end: int) -> None:
    """A header may claim anything: bytes that are not there, or bytes that do not stand one behind the other."""
    if found.issparse():
        raise DataError(
            f"{shard.name}: {shown(found.name)} is stored with holes; write the shard without tar's --sparse"
        )
    if not 0 <= found.size <= end - found.offset_data:
        raise DataError(
            f"{shard.name}: is cut off or damaged: {shown(found.name)} has {found.size:,} bytes there, and the shard "
            f"{end:,}; fetch or write it again"
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
