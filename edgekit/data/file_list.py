"""A table of files and their labels, `file,label`, in place of folders of classes: labels.csv beside the samples.

Names are relative to the table's folder. A third column, `split`, may say train, validation or test of each file;
without it all are train, and splits are taken out of that. Other columns are not read.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.core.hashing import canonical, sha256_file
from edgekit.data import archives, folder_layout
from edgekit.data.folder_layout import SPLITS, Layout, Wanted
from edgekit.data.paths import stamp, stamps

FILE, LABEL, SPLIT = "file", "label", "split"
DELIMITERS = ",;\t"
SHOWN = 5


@dataclass(frozen=True)
class Entry:
    """One row: where in the table it ends, the file's name with forward slashes, its label and its split."""

    line: int
    name: str
    label: str
    split: str = "train"


class Listed(AbstractContextManager["Listed"]):
    """The files that a table names, below its folder."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, path.parent
        self._entries = list(entries(path))

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def entries(self) -> list[Entry]:
        """Its rows; every file is there, and stands once."""
        return self._entries

    def listing(self) -> archives.Listing:
        return archives.Listing(tuple(sorted(each.name for each in self._entries)), ())

    def digest(self) -> str:
        """Sha256 over the table and every file that it names."""
        sha = hashlib.sha256(canonical([sha256_file(self._path)]))
        for each in self._entries:
            sha.update(canonical([each.name, sha256_file(self._folder / each.name)]))
        return sha.hexdigest()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


Source = archives.Folder | archives.Zip | Listed


def opened(path: Path) -> Source:
    """A folder of classes, a zip of one, or the files that a .csv names."""
    if path.is_dir():
        return archives.Folder(path)
    return Listed(path) if is_list(path) else archives.Zip(path)


def is_list(path: Path) -> bool:
    """Whether a path is meant as a table of files."""
    return path.suffix.lower() == ".csv" and path.is_file()


def layout(source: Source, origin: str, wanted: Wanted) -> Layout:
    """Splits, classes and samples, by folders or by the table."""
    if not isinstance(source, Listed):
        return folder_layout.parse(source.listing(), origin, wanted, _listed_splits(source, wanted))
    for each in source.entries:
        if not wanted.has(tuple(each.name.split("/"))):
            raise DataError(
                f"{origin}, line {each.line}: {each.name!r} is no {wanted.one} ({wanted.endings}); remove it"
            )
    classes = tuple(sorted({each.label for each in source.entries}))
    index = {name: label for label, name in enumerate(classes)}
    splits = [split for split in dict.fromkeys(SPLITS.values()) if any(each.split == split for each in source.entries)]
    if "train" not in splits:
        raise DataError(f"{origin}: no file is of the split train; write train in the column split")
    mixed = [source.entries[place] for place in np.random.default_rng(0).permutation(len(source.entries))]
    names = {split: [each.name for each in mixed if each.split == split] for split in splits}
    labels = {
        split: np.array([index[each.label] for each in mixed if each.split == split], np.int64) for split in splits
    }
    return Layout(classes, names, labels, ())


def _listed_splits(source: archives.Folder | archives.Zip, wanted: Wanted) -> dict[str, str]:
    """The split of each sample that an official list beside the classes names."""
    found: dict[str, str] = {}
    for name in source.listing().files:
        if split := folder_layout.LISTS.get(name):
            lines = source.read(name).decode("utf-8-sig", "replace").split()
            found.update((line.removeprefix("./"), split) for line in lines if line.lower().endswith(wanted.suffixes))
    return found


def signs(path: Path) -> list[object]:
    """What the file system says of all that is read at `path`."""
    if not is_list(path):
        return list(stamps(path))
    return [*stamps(path), *([each.name, *stamp(path.parent / each.name)] for each in entries(path))]


def entries(path: Path) -> Iterator[Entry]:
    """The rows of a table; DataError for one without a label, for a file that is not there or stands twice."""
    rows = _rows(path)
    header = [cell.strip() for _, row in rows[:1] for cell in row]
    places = {name: _place(path, header, name) for name in (FILE, LABEL)}
    split = header.index(SPLIT) if SPLIT in header else None
    seen: dict[str, int] = {}
    missing: list[str] = []
    for line, row in rows[1:]:
        where = f"{path.name}, line {line}"
        if len(row) != len(header):
            raise DataError(f"{where}: {len(row)} cells, the header has {len(header)}; give each row as many")
        name, label = (row[places[key]].strip() for key in (FILE, LABEL))
        if not name or not label:
            raise DataError(f"{where}: the {FILE if not name else LABEL} is empty; write it, or leave the row out")
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts:
            raise DataError(f"{where}: {name!r} lies outside of the table's folder; put it beside the table, or below")
        if str(plain) in seen:
            raise DataError(f"{where}: {name!r} stands in line {seen[str(plain)]} already; keep one of the two rows")
        seen[str(plain)] = line
        if not (path.parent / plain).is_file():
            missing.append(f"{name!r} (line {line})")
            continue
        yield Entry(line, str(plain), label, _split(where, row[split].strip()) if split is not None else "train")
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise DataError(
            f"{path.name}: {len(missing)} of its {len(seen)} files are not there: {', '.join(missing[:SHOWN])}{more}; "
            "names start at the table's folder"
        )
    if not seen:
        raise DataError(f"{path.name}: names no file; write a row for each, as in cat-1.jpg,cat")


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, each with its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name}: cannot be read as CSV in UTF-8 ({error}); save it anew") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        problem = f"{header.count(name)} columns are" if name in header else "no column is"
        raise DataError(
            f"{path.name}: {problem} called {name!r}; its header is {', '.join(map(repr, header[:SHOWN])) or 'empty'}: "
            f"begin the table with {FILE},{LABEL}"
        )
    return header.index(name)


def _split(where: str, word: str) -> str:
    if word not in SPLITS:
        raise DataError(f"{where}: {word!r} is not the name of a split, {suggest(word, list(SPLITS))}")
    return SPLITS[word]
