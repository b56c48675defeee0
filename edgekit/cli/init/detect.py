"""Detect from the content which data source reads a path, and with which options."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from pathlib import Path

from edgekit.cli.init import inspect, inspect_annotations, inspect_tables, inspect_tracks
from edgekit.cli.init.inspect import Findings
from edgekit.core.errors import DataError
from edgekit.core.file_type import describe
from edgekit.data import archives, folder_layout

EXPECTED = """edgekit init takes one of
  an .npz file with x_train, y_train and, if there, x_validation, y_validation, x_test, y_test, classes;
    of a network of several inputs x_train.NAME for each
  a folder or a zip of pictures, split/class/*.jpg or .png, as in train/cat/0001.jpg
  a folder or a zip of sounds, split/class/*.wav, as in train/yes/0001.wav
  a folder or a zip of recordings, split/class/*.csv, as in train/walking/0001.csv
  a .csv of pictures or sounds beside it, with the columns file,label; or the folder that holds it
  a .csv of features and a label, a row for each sample; or a folder with train.csv and, if there, test.csv
  a .wav with its label track, NAME.txt beside it, of start, end and label; or a folder of such
  a folder or a zip of texts, split/class/*.txt, as in train/spam/0001.txt
  a table of texts, .tsv or .csv, with a column of texts and one of classes
  a folder or a zip of pictures with boxes: Pascal VOC (Annotations/*.xml), COCO (a .json for each split) or YOLO
    (images/split/*.jpg and labels/split/*.txt)
  a folder or a zip of pictures with masks: images/split/*.jpg and masks/split/*.png, or as Pascal VOC has them
where split is train and, if there, validation and test"""
ZIP = b"PK\3\4"
ARCHIVE = "zip archives: unpack them, or give --data one of them"
MOST_FILES = 60
HEAD_BYTES = 2**16
"""A table's first line names every channel, which may be many."""
Source = folder_layout.Source
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff")
WANTED = {"picture": folder_layout.PICTURES, "sound": folder_layout.SOUNDS, "recording": folder_layout.RECORDINGS,
          "text": folder_layout.TEXTS}  # fmt: skip
INSPECTORS = {"picture": inspect.pictures, "sound": inspect.sounds, "recording": inspect.recordings,
              "text": inspect_tables.texts}  # fmt: skip


def detect(path: Path | None, task: str | None = None) -> Findings:
    """Findings about the data at `path`, or scikit-learn's digits for None; DataError if no source reads it.

    The task decides where pictures have boxes and masks.
    """
    if path is None:
        return Findings({"source": "digits", "size": 32}, "scikit-learn's handwritten digits, pictures of 32×32 pixels")
    if not path.exists():
        raise DataError(f"--data: nothing at {path}; name a file or a folder that is there, or leave --data out")
    if path.is_dir():
        return inspect_tables.row_table(path) if inspect_tables.is_rows(path) else _tree(path, "a folder", task)
    if not path.is_file():
        raise DataError(f"{path}: neither a file nor a folder; {EXPECTED}")
    if _may_hold_texts(path) and (found := inspect_tables.text_table(path)):
        return found
    if not zipfile.is_zipfile(path):
        if found := _one_file(path, task):
            return found
        raise DataError(f"{path}: looks like {_like(_start(path))}; {EXPECTED}")
    with archives.ZipArchive(path) as archive:
        names = archive.listing().files
    if names and all(name.endswith(".npy") and "/" not in name for name in names):
        return inspect.arrays(path)
    return _tree(path, "a zip", task)


def _may_hold_texts(path: Path) -> bool:
    """Whether it is a table, and none of files."""
    return path.suffix.lower() in inspect_tables.TABLES and folder_layout.FILE not in inspect.header(_start(path))


def _one_file(path: Path, task: str | None) -> Findings | None:
    """A table of files, a table of rows, or a recording with its track; None for any other file."""
    kind = kind_of(_start(path))
    if path.suffix.lower() == ".csv":
        names = inspect.header(_start(path))
        if folder_layout.FILE in names and (folder_layout.LABEL in names or kind != "recording"):
            return _tree(path, "a table")
        if kind == "recording":
            return inspect_tables.row_table(path)
    if kind == "sound" and inspect_tracks.has_track(path):
        return inspect_tracks.recordings(path, task)
    return None


def _tree(path: Path, where: str, task: str | None = None) -> Findings:
    with folder_layout.open_source(path) as source:
        listing = source.listing()
        if not isinstance(source, folder_layout.TableFiles):
            masked = inspect_annotations.layout(source)
            forms = [] if masked and task == "segmentation" else inspect_annotations.formats(source)
            if forms:
                return inspect_annotations.boxes(path, where, source, forms)
            if masked:
                return inspect_annotations.masks(path, where, source, masked)
            if task in (None, "segmentation"):
                inspect_annotations.refuse_other_names(path, source)
        kind, seen = _kind(path, source, listing.files)
        if kind != "recording" and not _has_classes(listing.files) and (table := _table_in(path)):
            return _tree(table, "a table")
        if kind == "sound" and path.is_dir() and inspect_tracks.has_track(path):
            return inspect_tracks.recordings(path, task)
        if kind == "recording" and isinstance(source, folder_layout.TableFiles):
            raise DataError(f"{path}: lists recordings in .csv, which are laid out in folders; {EXPECTED}")
        wanted = WANTED[kind]
        strays = [name for name in seen if not name.lower().endswith(wanted.suffixes)]
        if len(strays) == len(seen):
            raise DataError(
                f"{path}: {strays[0]!r} is a {kind} by its content, and its name does not end in {wanted.endings}; "
                f"rename the files, or convert them to what their names say; {wanted.expected}"
            )
        plan = folder_layout.read_layout(source, path.name, wanted)
        return INSPECTORS[kind](path, where, plan, source)


def _has_classes(names: tuple[str, ...]) -> bool:
    """Whether files lie as split/class/file, which says more than a table of them."""
    return any(name.count("/") > 1 and name.partition("/")[0] in folder_layout.SPLITS for name in names)


def _table_in(folder: Path) -> Path | None:
    """The table of `file,label` that lies in a folder; DataError where several do, and none is called labels.csv."""
    tables = [each for each in sorted(folder.iterdir()) if each.suffix.lower() == ".csv"] if folder.is_dir() else []
    found = [each for each in tables if {folder_layout.FILE, folder_layout.LABEL} <= {*inspect.header(_start(each))}]
    named = [each for each in found if each.name.lower() == "labels.csv"] or found
    if len(named) > 1:
        raise DataError(f"{folder}: {', '.join(each.name for each in named)} all list files; give --data one of them")
    return named[0] if named else None


def _kind(path: Path, source: Source, names: tuple[str, ...]) -> tuple[str, list[str]]:
    """The kind of most files, and the names of the examined files of that kind."""
    shown = [name for name in names if not any(part[:1] in (".", "_") for part in name.split("/"))]
    found: dict[str, list[str]] = {}
    other: Counter[str] = Counter()
    for name in shown[:: max(1, len(shown) // MOST_FILES)]:
        start = _start(path / name) if path.is_dir() else _inside(source, name)
        kind = kind_of(start, columns=1 if name.lower().endswith(folder_layout.RECORDINGS.suffixes) else 2)
        if kind in (None, "recording") and name.lower().endswith(folder_layout.TEXTS.suffixes):
            kind = "text" if inspect_tables.is_text(start) else None  # a text may well look like a table
        if kind:
            found.setdefault(kind, []).append(name)
        else:
            other[ARCHIVE if start.startswith(ZIP) else _like(start)] += 1
    if not found:
        most = f"{len(shown)} files, most of them {other.most_common(1)[0][0]}" if other else "no file at all"
        raise DataError(f"{path}: holds {most}; {EXPECTED}")
    return max(found.items(), key=lambda item: len(item[1]))


def kind_of(start: bytes, columns: int = 2) -> str | None:
    """`picture`, `sound` or `recording` by the first bytes of a file; None for anything else.

    A text of fewer `columns` is no recording.
    """
    if start.startswith(PICTURES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "picture"
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return "sound"
    return "recording" if inspect.is_table(start, columns) else None


def _start(path: Path) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""


def _inside(source: Source, name: str) -> bytes:
    """The same of a member of a zip."""
    try:
        return source.read(name)[:HEAD_BYTES]
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
        return b""


def _like(start: bytes) -> str:
    """As `file_type.like`, with formats that a user may take for a data set."""
    if start.startswith(b"\x93NUMPY"):
        return "a single array (.npy): save it with its labels, np.savez('data.npz', x_train=…, y_train=…)"
    if start.startswith(b"PAR1"):
        return "a Parquet table: read it with pandas and save its columns with np.savez"
    if kind_of(start) == "recording":
        return "a table in text whose name does not end in .csv: rename it"
    if kind_of(start) == "sound":
        return "a single WAV file without a label track, NAME.txt beside it"
    if start.startswith(ZIP):
        return "a zip that is cut short or damaged; copy it again"
    return describe(start)
