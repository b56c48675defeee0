"""Which files are samples, of which split and class: by folders, split/class/picture, or by a table.

The table, labels.csv beside the samples, has the columns `file,label` and stands in place of folders of classes. Names
are relative to the table's folder. A third column, `split`, may say train, validation or test of each file;
without it all are train, and splits are taken out of that. Other columns are not read.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.core.hashing import canonical_json, sha256_file
from edgekit.data import archives
from edgekit.data.archives import Listing
from edgekit.data.paths import file_stamp, file_stamps

NOISE_FOLDER = "_background_noise_"
"""A folder of Speech Commands (Warden 2018): long recordings to be mixed in, which are no class."""
SPLITS = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}
SPLIT_LISTS = {
    "validation_list.txt": "validation",
    "val_list.txt": "validation",
    "testing_list.txt": "test",
    "test_list.txt": "test",
    "train_list.txt": "train",
    "training_list.txt": "train",
}
"""Official lists beside the classes, a sample a line, as Speech Commands has them; what none names is train."""
_SHOWN = 10
_STRAY = 0.02
"""Share of samples at the wrong depth that is skipped and noted; of more, the layout is another one."""

Parts = tuple[str, ...]


@dataclass(frozen=True)
class SampleFiles:
    """The files that are samples: the ends of their names, and how messages speak of them."""

    suffixes: tuple[str, ...]
    noun: str
    endings: str
    example: str

    @property
    def expected(self) -> str:
        """What a folder should look like."""
        return (
            f"expected split/class/{self.noun}, as in train/{self.example}: splits train (needed), validation (or val) "
            f"and test, {self.noun}s {self.endings}; or class/{self.noun} alone"
        )

    def has(self, parts: Parts) -> bool:
        """Whether the file is one."""
        return parts[-1].lower().endswith(self.suffixes) and not _hidden("/".join(parts))


PICTURES = SampleFiles((".jpg", ".jpeg", ".png", ".webp"), "picture", ".jpg, .jpeg, .png or .webp", "cat/0001.jpg")
RECORDINGS = SampleFiles((".csv",), "recording", ".csv", "walking/0001.csv")
SOUNDS = SampleFiles((".wav",), "sound", ".wav", "yes/0001.wav")
TEXTS = SampleFiles((".txt",), "text", ".txt", "spam/0001.txt")


@dataclass(frozen=True)
class FolderLayout:
    """Names and labels of the samples of each split, in a fixed mixed order; `notes` name what was skipped."""

    classes: tuple[str, ...]
    names: dict[str, list[str]]
    labels: dict[str, np.ndarray]
    notes: tuple[str, ...]


def parse_layout(
    listing: Listing, origin: str, wanted: SampleFiles = PICTURES, listed: Mapping[str, str] = MappingProxyType({})
) -> FolderLayout:
    """Find splits, classes and samples; DataError where the folder is laid out otherwise.

    `listed` gives the split of samples by name, where folders are classes alone; what it does not name is train.
    """
    wrapper = _wrapper(listing, wanted)
    files = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.files]
    folders = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.folders if not _hidden(name)]
    samples = [parts for parts in files if wanted.has(parts)]
    passed = ["/".join(parts) for parts in files if not wanted.has(parts)]
    noise = ["/".join(parts) for parts in samples if NOISE_FOLDER in parts[:-1]]
    samples, folders = ([parts for parts in each if NOISE_FOLDER not in parts] for each in (samples, folders))
    bare = _is_bare(samples)
    if bare:  # class/sample, without folders of splits
        samples = [(listed.get("/".join(parts), "train"), *parts) for parts in samples]
        folders = [("train", *parts) for parts in folders]
    splits = _splits({parts[0] for parts in [*samples, *folders] if len(parts) > 1}, origin, wanted)
    stray = [parts for parts in samples if len(parts) != 3]
    if len(stray) > _STRAY * len(samples):
        raise DataError(
            f"{origin}: {'/'.join(stray[0][1 if bare else 0 :])!r} stands at the wrong depth; {wanted.expected}"
        )
    samples = [parts for parts in samples if len(parts) == 3]
    folders = [parts for parts in folders if len(parts) <= 2]
    # An empty class folder is a class too: it is reported as empty, not forgotten.
    classes = tuple(sorted({parts[1] for parts in [*samples, *folders] if len(parts) > 1}))
    index = {name: label for label, name in enumerate(classes)}
    names: dict[str, list[str]] = {split: [] for split in splits.values()}
    labels: dict[str, list[int]] = {split: [] for split in splits.values()}
    # Mixed, so that any prefix of a split is a fair sample of it; the order depends on nothing but the names.
    for place in np.random.default_rng(0).permutation(len(samples)):
        split, name, _ = samples[place]
        names[splits[split]].append(wrapper + "/".join(samples[place][1 if bare else 0 :]))
        labels[splits[split]].append(index[name])
    if bare and listed:
        passed = [name for name in passed if PurePosixPath(name).name not in SPLIT_LISTS]
    deep = ["/".join(parts[1 if bare else 0 :]) for parts in stray]
    notes = [
        *_noted(f"{wanted.noun}s that stand at the wrong depth", deep),
        *_noted(f"{wanted.noun}s of {NOISE_FOLDER}, which is no class", noise),
        *_noted(f"files that are no {wanted.endings}", passed),
        *_noted("linked folders", listing.links),
    ]
    return FolderLayout(
        classes, names, {split: np.array(found, np.int64) for split, found in labels.items()}, tuple(notes)
    )


def _is_bare(samples: Sequence[Parts]) -> bool:
    """Whether these are class/sample, of two classes at least, none of which is called like a split."""
    tops = {parts[0] for parts in samples if len(parts) == 2}
    flat = sum(len(parts) == 2 for parts in samples)
    meant = any(difflib.get_close_matches(name.lower(), SPLITS, cutoff=0.75) for name in tops)
    return len(tops) > 1 and not meant and flat >= (1 - _STRAY) * len(samples)


def _splits(tops: set[str], origin: str, wanted: SampleFiles) -> dict[str, str]:
    """Top folders and the split that each means."""
    found = {name: SPLITS[name] for name in sorted(tops) if name in SPLITS}
    unknown = sorted(tops - set(SPLITS))
    if not found:
        hint = ""
        if unknown:
            hint = f" there are only {_some(unknown)}: are these classes? Put their folders into a folder named train"
        raise DataError(f"{origin}: no split found; {wanted.expected};{hint or ' it holds no such folder'}")
    if unknown:
        raise DataError(f"{origin}: {unknown[0]!r} is not the name of a split, {suggest(unknown[0], list(SPLITS))}")
    if len(set(found.values())) < len(found):
        raise DataError(f"{origin}: {_some(sorted(found))} mean the same split twice; keep one folder for each")
    if "train" not in found:
        raise DataError(f"{origin}: no train folder, only {_some(sorted(found))}; {wanted.expected}")
    return found


def _wrapper(listing: Listing, wanted: SampleFiles) -> str:
    """'name/' if everything stands in one folder around the splits, as many zips are made."""
    tops = {name.split("/")[0] for name in listing.files if wanted.has(tuple(name.split("/")))}
    if len(tops) != 1 or tops & set(SPLITS):
        return ""
    wrapper = f"{tops.pop()}/"
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
    """One row: where in the table it ends, the file's name with forward slashes, its label and its split."""

    line: int
    name: str
    label: str
    split: str = "train"


class TableFiles(AbstractContextManager["TableFiles"]):
    """The files that a table names, below its folder."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, path.parent
        self._entries = list(table_entries(path))

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def entries(self) -> list[TableEntry]:
        """Its rows; every file is there, and stands once."""
        return self._entries

    def listing(self) -> archives.Listing:
        return archives.Listing(tuple(sorted(each.name for each in self._entries)), ())

    def digest(self) -> str:
        """Sha256 over the table and every file that it names."""
        sha = hashlib.sha256(canonical_json([sha256_file(self._path)]))
        for each in self._entries:
            sha.update(canonical_json([each.name, sha256_file(self._folder / each.name)]))
        return sha.hexdigest()

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


Source = archives.FolderArchive | archives.ZipArchive | TableFiles


def open_source(path: Path) -> Source:
    """A folder of classes, a zip of one, or the files that a .csv names."""
    if path.is_dir():
        return archives.FolderArchive(path)
    return TableFiles(path) if is_table(path) else archives.ZipArchive(path)


def is_table(path: Path) -> bool:
    """Whether a path is meant as a table of files."""
    return path.suffix.lower() == ".csv" and path.is_file()


def read_layout(source: Source, origin: str, wanted: SampleFiles) -> FolderLayout:
    """Splits, classes and samples, by folders or by the table."""
    if not isinstance(source, TableFiles):
        return parse_layout(source.listing(), origin, wanted, _listed_splits(source, wanted))
    for each in source.entries:
        if not wanted.has(tuple(each.name.split("/"))):
            raise DataError(
                f"{origin}, line {each.line}: {each.name!r} is no {wanted.noun} ({wanted.endings}); remove it"
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
    return FolderLayout(classes, names, labels, ())


def _listed_splits(source: archives.FolderArchive | archives.ZipArchive, wanted: SampleFiles) -> dict[str, str]:
    """The split of each sample that an official list beside the classes names."""
    found: dict[str, str] = {}
    for name in source.listing().files:
        if split := SPLIT_LISTS.get(name):
            lines = source.read(name).decode("utf-8-sig", "replace").split()
            found.update((line.removeprefix("./"), split) for line in lines if line.lower().endswith(wanted.suffixes))
    return found


def content_stamps(path: Path) -> list[object]:
    """What the file system says of all that is read at `path`."""
    if not is_table(path):
        return list(file_stamps(path))
    return [*file_stamps(path), *([each.name, *file_stamp(path.parent / each.name)] for each in table_entries(path))]


def table_entries(path: Path) -> Iterator[TableEntry]:
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
        yield TableEntry(line, str(plain), label, _split(where, row[split].strip()) if split is not None else "train")
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
