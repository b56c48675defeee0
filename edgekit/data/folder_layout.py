"""Find which files are samples, and their splits and classes, from folders (split/class/picture) or from a table.

The table is a file such as labels.csv beside the samples. It has the columns `file,label` and replaces folders of
classes. Names are relative to the table's folder. A third column, `split`, can assign each file to train, validation or
test; without it, all files belong to train, and the other splits are taken out of train. Other columns are ignored.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.core.hashing import canonical_json, sha256_file
from edgekit.core.paths import file_stamp, file_stamps
from edgekit.data import archives
from edgekit.data.archives import Listing

NOISE_FOLDER = "_background_noise_"
"""A folder in Speech Commands (Warden 2018) that is not a class: its long recordings of noise are meant for mixing."""
SPLITS = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}
SPLIT_LISTS = {
    "validation_list.txt": "validation",
    "val_list.txt": "validation",
    "testing_list.txt": "test",
    "test_list.txt": "test",
    "train_list.txt": "train",
    "training_list.txt": "train",
}
"""Official lists beside the classes, with one sample per line, as in Speech Commands. Other samples belong to train."""
_SHOWN = 10
_STRAY = 0.02
"""If at most this share of the samples is at the wrong depth, these samples are skipped and noted.

If the share is larger, the folder has a different layout and is refused.
"""

Parts = tuple[str, ...]


@dataclass(frozen=True)
class SampleFiles:
    """The kind of files that are samples: the suffixes of their names, and the words that messages use for them."""

    suffixes: tuple[str, ...]
    noun: str
    endings: str
    example: str

    @property
    def expected(self) -> str:
        """A description of the expected folder."""
        return (
            f"expected split/class/{self.noun}, as in train/{self.example}: splits train (needed), validation (or val) "
            f"and test, {self.noun}s {self.endings}; or class/{self.noun} alone"
        )

    def has(self, parts: Parts) -> bool:
        """Return whether the file is a sample."""
        return parts[-1].lower().endswith(self.suffixes) and not _hidden("/".join(parts))


PICTURES = SampleFiles((".jpg", ".jpeg", ".png", ".webp"), "picture", ".jpg, .jpeg, .png or .webp", "cat/0001.jpg")
RECORDINGS = SampleFiles((".csv",), "recording", ".csv", "walking/0001.csv")
SOUNDS = SampleFiles((".wav",), "sound", ".wav", "yes/0001.wav")
TEXTS = SampleFiles((".txt",), "text", ".txt", "spam/0001.txt")


@dataclass(frozen=True)
class FolderLayout:
    """Names and labels of each split's samples, in a fixed random order. `notes` report skipped files."""

    classes: tuple[str, ...]
    names: dict[str, list[str]]
    labels: dict[str, np.ndarray]
    notes: tuple[str, ...]


def parse_layout(
    listing: Listing, origin: str, kind: SampleFiles = PICTURES, listed: Mapping[str, str] = MappingProxyType({})
) -> FolderLayout:
    """Find splits, classes and samples.

    Parameters
    ----------
    listing
        All files and folders.
    origin
        The name of the folder or zip, which messages begin with.
    kind
        The files that are samples.
    listed
        Maps sample names to splits, for folders that are only classes. Samples that are not in it belong to train.

    Raises
    ------
    DataError
        The folder has another layout.
    """
    wrapper = _wrapper(listing, kind)
    files = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.files]
    folders = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.folders if not _hidden(name)]
    samples = [parts for parts in files if kind.has(parts)]
    skipped = ["/".join(parts) for parts in files if not kind.has(parts)]
    noise = ["/".join(parts) for parts in samples if NOISE_FOLDER in parts[:-1]]
    samples, folders = ([parts for parts in each if NOISE_FOLDER not in parts] for each in (samples, folders))
    has_no_splits = _has_no_split_folders(samples)
    if has_no_splits:  # class/sample, without folders of splits
        samples = [(listed.get("/".join(parts), "train"), *parts) for parts in samples]
        folders = [("train", *parts) for parts in folders]
    splits = _splits({parts[0] for parts in [*samples, *folders] if len(parts) > 1}, origin, kind)
    stray = [parts for parts in samples if len(parts) != 3]
    if len(stray) > _STRAY * len(samples):
        raise DataError(
            f"{origin}: {'/'.join(stray[0][1 if has_no_splits else 0 :])!r} is at the wrong depth; {kind.expected}"
        )
    samples = [parts for parts in samples if len(parts) == 3]
    folders = [parts for parts in folders if len(parts) <= 2]
    # An empty class folder counts as a class, so that it is reported as empty.
    classes = tuple(sorted({parts[1] for parts in [*samples, *folders] if len(parts) > 1}))
    index = {name: label for label, name in enumerate(classes)}
    names: dict[str, list[str]] = {split: [] for split in splits.values()}
    labels: dict[str, list[int]] = {split: [] for split in splits.values()}
    # The order is random, so that any prefix of a split is representative, but it depends only on the names.
    for place in np.random.default_rng(0).permutation(len(samples)):
        split, name, _ = samples[place]
        names[splits[split]].append(wrapper + "/".join(samples[place][1 if has_no_splits else 0 :]))
        labels[splits[split]].append(index[name])
    if has_no_splits and listed:
        skipped = [name for name in skipped if PurePosixPath(name).name not in SPLIT_LISTS]
    stray_names = ["/".join(parts[1 if has_no_splits else 0 :]) for parts in stray]
    notes = [
        *_noted(f"{kind.noun}s at the wrong depth", stray_names),
        *_noted(f"{kind.noun}s of {NOISE_FOLDER}, which is no class", noise),
        *_noted(f"files that are not {kind.endings}", skipped),
        *_noted("linked folders", listing.links),
    ]
    return FolderLayout(
        classes,
        names,
        {split: np.array(split_labels, np.int64) for split, split_labels in labels.items()},
        tuple(notes),
    )


def _has_no_split_folders(samples: Sequence[Parts]) -> bool:
    """Return whether the files are laid out as class/sample, with at least two classes, none named like a split."""
    top_folders = {parts[0] for parts in samples if len(parts) == 2}
    depth_two_count = sum(len(parts) == 2 for parts in samples)
    resembles_split = any(difflib.get_close_matches(name.lower(), SPLITS, cutoff=0.75) for name in top_folders)
    return len(top_folders) > 1 and not resembles_split and depth_two_count >= (1 - _STRAY) * len(samples)


def _splits(top_folders: set[str], origin: str, kind: SampleFiles) -> dict[str, str]:
    """Map the top-level folders to their splits."""
    splits = {name: SPLITS[name] for name in sorted(top_folders) if name in SPLITS}
    unknown = sorted(top_folders - set(SPLITS))
    if not splits:
        hint = ""
        if unknown:
            hint = f" there are only {_some(unknown)}: are these classes? Put their folders into a folder named train"
        raise DataError(f"{origin}: no split found; {kind.expected};{hint or ' it holds no such folder'}")
    if unknown:
        raise DataError(f"{origin}: {unknown[0]!r} is not the name of a split, {suggest(unknown[0], list(SPLITS))}")
    if len(set(splits.values())) < len(splits):
        raise DataError(f"{origin}: {_some(sorted(splits))} stand for the same split; keep one folder for each split")
    if "train" not in splits:
        raise DataError(f"{origin}: no train folder, only {_some(sorted(splits))}; {kind.expected}")
    return splits


def _wrapper(listing: Listing, kind: SampleFiles) -> str:
    """Return 'name/' if a single folder contains all the splits, as in many zips."""
    top_folders = {name.split("/")[0] for name in listing.files if kind.has(tuple(name.split("/")))}
    if len(top_folders) != 1 or top_folders & set(SPLITS):
        return ""
    wrapper = f"{top_folders.pop()}/"
    inner = {name.removeprefix(wrapper).split("/")[0] for name in listing.files if name.startswith(wrapper)}
    return wrapper if inner & set(SPLITS) else ""


def _hidden(name: str) -> bool:
    return any((part.startswith(".") and part != ".") or part == "__MACOSX" for part in name.split("/"))


def _noted(what: str, names: Sequence[str]) -> list[str]:
    return [f"skipped {len(names)} {what}: {_some(names)}"] if names else []


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


FILE, LABEL, SPLIT = "file", "label", "split"
DELIMITERS = ",;\t"
SHOWN = 5


@dataclass(frozen=True)
class TableEntry:
    """One row of the table: the line in which it ends, and the file's name (with forward slashes), label and split."""

    line: int
    name: str
    label: str
    split: str = "train"


class TableFiles(AbstractContextManager["TableFiles"]):
    """The files that a table lists. They lie in its folder or below."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, path.parent
        self._entries = list(table_entries(path))

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def entries(self) -> list[TableEntry]:
        """The rows of the table. Every file exists and is listed once."""
        return self._entries

    @cached_property
    def listing(self) -> archives.Listing:
        """The names of the files."""
        return archives.Listing(tuple(sorted(each.name for each in self._entries)), ())

    def digest(self) -> str:
        """Return a SHA-256 that covers the table and every file that it lists."""
        sha = hashlib.sha256(canonical_json([sha256_file(self._path)]))
        for each in self._entries:
            sha.update(canonical_json([each.name, sha256_file(self._folder / each.name)]))
        return sha.hexdigest()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


Source = archives.FolderArchive | archives.ZipArchive | TableFiles


def open_source(path: Path) -> Source:
    """Open a folder of classes, a zip of such a folder, or the files that a .csv lists."""
    if path.is_dir():
        return archives.FolderArchive(path)
    return TableFiles(path) if is_table(path) else archives.ZipArchive(path)


def is_table(path: Path) -> bool:
    """Return whether the path is a table that lists files."""
    return path.suffix.lower() == ".csv" and path.is_file()


def read_layout(source: Source, origin: str, kind: SampleFiles) -> FolderLayout:
    """Find splits, classes and samples from folders or from the table."""
    if not isinstance(source, TableFiles):
        return parse_layout(source.listing, origin, kind, _listed_splits(source, kind))
    for entry in source.entries:
        if not kind.has(tuple(entry.name.split("/"))):
            raise DataError(
                f"{origin}, line {entry.line}: {entry.name!r} is not a {kind.noun} ({kind.endings}); remove it"
            )
    classes = tuple(sorted({entry.label for entry in source.entries}))
    index = {name: label for label, name in enumerate(classes)}
    splits = [
        split for split in dict.fromkeys(SPLITS.values()) if any(entry.split == split for entry in source.entries)
    ]
    if "train" not in splits:
        raise DataError(f"{origin}: no file belongs to the split train; write train in the column split")
    shuffled = [source.entries[place] for place in np.random.default_rng(0).permutation(len(source.entries))]
    names = {split: [entry.name for entry in shuffled if entry.split == split] for split in splits}
    labels = {
        split: np.array([index[entry.label] for entry in shuffled if entry.split == split], np.int64)
        for split in splits
    }
    return FolderLayout(classes, names, labels, ())


def _listed_splits(source: archives.FolderArchive | archives.ZipArchive, kind: SampleFiles) -> dict[str, str]:
    """Return the split of each sample that is in an official list beside the classes."""
    splits: dict[str, str] = {}
    for name in source.listing.files:
        if split := SPLIT_LISTS.get(name):
            lines = source.read(name).decode("utf-8-sig", "replace").split()
            splits.update((line.removeprefix("./"), split) for line in lines if line.lower().endswith(kind.suffixes))
    return splits


def content_stamps(path: Path) -> list[object]:
    """Return the name and the stamp (`file_stamp`) of every file in the folder `path`.

    For a zip, return the stamp of the zip. For a table, return the stamps of the table and of the files that it lists.
    """
    if not is_table(path):
        return list(file_stamps(path))
    return [*file_stamps(path), *([entry.name, *file_stamp(path.parent / entry.name)] for entry in table_entries(path))]


def table_entries(path: Path) -> Iterator[TableEntry]:
    """Yield the rows of a table.

    Raises
    ------
    DataError
        A row has no label, or its file does not exist or is listed twice.
    """
    rows = _rows(path)
    header = [cell.strip() for _, row in rows[:1] for cell in row]
    columns = {name: _column_index(path, header, name) for name in (FILE, LABEL)}
    split = header.index(SPLIT) if SPLIT in header else None
    line_of_name: dict[str, int] = {}
    missing: list[str] = []
    for line, row in rows[1:]:
        where = f"{path.name}, line {line}"
        if len(row) != len(header):
            raise DataError(
                f"{where}: {len(row)} cells, but the header has {len(header)}; each row needs as many "
                f"cells as the header"
            )
        name, label = (row[columns[key]].strip() for key in (FILE, LABEL))
        if not name or not label:
            raise DataError(f"{where}: the {FILE if not name else LABEL} is empty; fill it in, or leave the row out")
        relative_path = PurePosixPath(name)
        if relative_path.is_absolute() or ".." in relative_path.parts:
            raise DataError(f"{where}: {name!r} is outside the table's folder; put it into the table's folder or below")
        if str(relative_path) in line_of_name:
            raise DataError(
                f"{where}: {name!r} is already in line {line_of_name[str(relative_path)]}; keep one of the two rows"
            )
        line_of_name[str(relative_path)] = line
        if not (path.parent / relative_path).is_file():
            missing.append(f"{name!r} (line {line})")
            continue
        yield TableEntry(
            line, str(relative_path), label, _split(where, row[split].strip()) if split is not None else "train"
        )
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise DataError(
            f"{path.name}: {len(missing)} of its {len(line_of_name)} files do not exist: "
            f"{', '.join(missing[:SHOWN])}{more}; names are relative to the table's folder"
        )
    if not line_of_name:
        raise DataError(f"{path.name}: lists no file; write one row per file, as in cat-1.jpg,cat")


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows that are not empty, each with its line number."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name}: cannot be read as CSV in UTF-8 ({error}); save it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None


def _column_index(path: Path, header: list[str], name: str) -> int:
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
