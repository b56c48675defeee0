"""Where the samples of WebDataset shards lie and what their labels are: some 30 bytes a sample, whatever it holds."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgekit.core.config import truncated
from edgekit.core.errors import DataError
from edgekit.core.tasks.labels import some
from edgekit.data import shards
from edgekit.data.shards import Member, Reader, Sample
from edgekit.runner.errors import bounded_recursion

Label = int | str
LONGEST_LABEL = 200
"""Characters of a class's name."""


@dataclass(frozen=True)
class Wanted:
    """Which member is the sample, one of `extensions`, and which the label: `cls`, or `json.KEY`."""

    extensions: tuple[str, ...]
    one: str
    label: str


@dataclass(frozen=True, eq=False)
class Found:
    """The samples of one split, in the order of its shards: their places, and codes of their labels (n,)."""

    files: list[Path]
    shard: array[int] = field(default_factory=lambda: array("i"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.code)

    def content(self, place: int, reader: Reader) -> bytes:
        """The bytes of a sample."""
        return reader.read(self.files[self.shard[place]], Member(self.offset[place], self.size[place]))

    def called(self, place: int) -> str:
        """Shard and key of a sample, for messages: the shard is read for it once more."""
        path = self.files[self.shard[place]]
        for sample in shards.samples(path):
            if any(member.offset == self.offset[place] for member in sample.members.values()):
                return f"{path.name}: {shards.shown(sample.key)}"
        return path.name


def read(files: dict[str, list[Path]], wanted: Wanted, names: Sequence[str] | None) -> tuple[
    dict[str, Found], dict[str, np.ndarray], tuple[str, ...]
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


def _split(files: list[Path], wanted: Wanted, codes: dict[Label, int]) -> Found:
    found = Found(files)
    with Reader() as reader:
        for number, path in enumerate(files):
            for sample in shards.samples(path):
                member = _chosen(path, sample, wanted)
                found.shard.append(number)
                found.offset.append(member.offset)
                found.size.append(member.size)
                found.code.append(codes.setdefault(_label(path, sample, wanted.label, reader), len(codes)))
    return found


def _chosen(path: Path, sample: Sample, wanted: Wanted) -> Member:
    fitting = [each for each in wanted.extensions if each in sample.members]
    if len(fitting) == 1:
        return sample.members[fitting[0]]
    if fitting:
        raise DataError(
            f"{path.name}: sample {sample.key!r} has several {wanted.one}s, .{' and .'.join(fitting)}; "
            "name one of them in data.member"
        )
    has = shards.shown(", ".join(f".{each}" for each in sorted(sample.members)))
    raise DataError(
        f"{path.name}: sample {sample.key!r} has no {wanted.one} (.{', .'.join(wanted.extensions)}), only {has}; "
        "name its extension in data.member, or take the sample out"
    )


def _label(path: Path, sample: Sample, label: str, reader: Reader) -> Label:
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
        raise DataError(f"{where} is {truncated(value)}; give a whole number or a name")
    if isinstance(text, str) and len(text) > LONGEST_LABEL:
        raise DataError(f"{where} is {truncated(text)}; give a name of at most {LONGEST_LABEL} characters")
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
                f"data.classes: a label is {strange[0]!r}, and there are {len(names)} classes, {some(names)}; "
                "give each label its name, in the order of the numbers from 0"
            )
        return tuple(names), np.array([each if _whole(each) else place[str(each)] for each in found], np.int64)
    numbers = all(_whole(value) for value in found)
    ordered: list[Label] = sorted(found, key=lambda value: int(value) if numbers else str(value))
    place_of = {value: number for number, value in enumerate(ordered)}
    return tuple(map(str, ordered)), np.array([place_of[value] for value in found], np.int64)


def _whole(value: Label) -> bool:
    return isinstance(value, int)
