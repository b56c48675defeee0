"""Detect from the content of a path which data source reads it and with which options."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from pathlib import Path

from edgekit.cli.init import annotation_inspection, inspection, table_inspection, track_inspection
from edgekit.cli.init.inspection import Findings
from edgekit.core.errors import DataError
from edgekit.core.file_type import describe
from edgekit.data import archives, folder_layout

EXPECTED = """edgekit init takes one of
  an .npz file with x_train, y_train and, if you have them, x_validation, y_validation, x_test, y_test, classes;
    for a network with several inputs x_train.NAME for each input
  a folder or a zip of pictures, split/class/*.jpg or .png, as in train/cat/0001.jpg
  a folder or a zip of sounds, split/class/*.wav, as in train/yes/0001.wav
  a folder or a zip of recordings, split/class/*.csv, as in train/walking/0001.csv
  a .csv of pictures or sounds beside it, with the columns file,label; or the folder that holds it
  a .csv of features and a label, a row for each sample; or a folder with train.csv and, if you have it, test.csv
  a .wav with its label track, NAME.txt beside it, of start, end and label; or a folder of such
  a folder or a zip of texts, split/class/*.txt, as in train/spam/0001.txt
  a table of texts, .tsv or .csv, with a column of texts and one of classes
  a folder or a zip of pictures with boxes: Pascal VOC (Annotations/*.xml), COCO (a .json for each split) or YOLO
    (images/split/*.jpg and labels/split/*.txt)
  a folder or a zip of pictures with masks: images/split/*.jpg and masks/split/*.png, or as Pascal VOC has them
where split is train, validation or test, and only train is needed"""
ZIP_SIGNATURE = b"PK\3\4"
ARCHIVE = "zip archives: unpack them, or give --data one of them"
MAX_FILES = 60
HEAD_BYTES = 2**16
"""Number of bytes read at the start of a file, enough for the first line of a table with many channels."""
Source = folder_layout.Source
PICTURE_SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff")
KINDS = {
    "picture": folder_layout.PICTURES,
    "sound": folder_layout.SOUNDS,
    "recording": folder_layout.RECORDINGS,
    "text": folder_layout.TEXTS,
}
INSPECTORS = {
    "picture": inspection.inspect_pictures,
    "sound": inspection.inspect_sounds,
    "recording": inspection.inspect_recordings,
    "text": table_inspection.inspect_texts,
}


def detect_source(path: Path | None, task: str | None = None) -> Findings:
    """Return findings about the data at `path`, or about scikit-learn's digits if it is None.

    If pictures have both boxes and masks, the task decides which are used.

    Raises
    ------
    DataError
        No source can read the data.
    """
    if path is None:
        return Findings({"source": "digits", "size": 32}, "scikit-learn's handwritten digits, pictures of 32×32 pixels")
    if not path.exists():
        raise DataError(f"--data: {path} does not exist; name an existing file or folder, or leave --data out")
    if path.is_dir():
        return (
            table_inspection.inspect_row_table(path)
            if table_inspection.has_row_tables(path)
            else _inspect_tree(path, "a folder", task)
        )
    if not path.is_file():
        raise DataError(f"{path}: neither a file nor a folder; {EXPECTED}")
    if _may_hold_texts(path) and (findings := table_inspection.inspect_text_table(path)):
        return findings
    if not zipfile.is_zipfile(path):
        if findings := _inspect_file(path, task):
            return findings
        raise DataError(f"{path}: looks like {_describe_content(_first_bytes(path))}; {EXPECTED}")
    with archives.ZipArchive(path) as archive:
        names = archive.listing.files
    if names and all(name.endswith(".npy") and "/" not in name for name in names):
        return inspection.inspect_arrays(path)
    return _inspect_tree(path, "a zip", task)


def _may_hold_texts(path: Path) -> bool:
    """Whether the path is a table that is not a list of files."""
    return (
        path.suffix.lower() in table_inspection.DELIMITER_BY_SUFFIX
        and folder_layout.FILE not in inspection.table_header(_first_bytes(path))
    )


def _inspect_file(path: Path, task: str | None) -> Findings | None:
    """Inspect a list of files, a table of rows, or a recording with its track. Return None for any other file."""
    kind = kind_of(_first_bytes(path))
    if path.suffix.lower() == ".csv":
        names = inspection.table_header(_first_bytes(path))
        if folder_layout.FILE in names and (folder_layout.LABEL in names or kind != "recording"):
            return _inspect_tree(path, "a table")
        if kind == "recording":
            return table_inspection.inspect_row_table(path)
    if kind == "sound" and track_inspection.has_track(path):
        return track_inspection.inspect_tracks(path, task)
    return None


def _inspect_tree(path: Path, container: str, task: str | None = None) -> Findings:
    with folder_layout.open_source(path) as source:
        listing = source.listing
        if not isinstance(source, folder_layout.TableFiles):
            mask_layout = annotation_inspection.mask_layout(source)
            formats = [] if mask_layout and task == "segmentation" else annotation_inspection.annotation_formats(source)
            if formats:
                return annotation_inspection.inspect_boxes(path, container, source, formats, task)
            if mask_layout:
                return annotation_inspection.inspect_masks(path, container, source, mask_layout)
            if task in (None, "segmentation"):
                annotation_inspection.refuse_unnamed_masks(path, source)
        kind, names = _most_common_kind(path, source, listing.files)
        if kind != "recording" and not _has_classes(listing.files) and (table := _find_table(path)):
            return _inspect_tree(table, "a table")
        if kind == "sound" and path.is_dir() and track_inspection.has_track(path):
            return track_inspection.inspect_tracks(path, task)
        if kind == "recording" and isinstance(source, folder_layout.TableFiles):
            raise DataError(f"{path}: lists recordings in .csv, which are laid out in folders; {EXPECTED}")
        kind_layout = KINDS[kind]
        misnamed = [name for name in names if not name.lower().endswith(kind_layout.suffixes)]
        if len(misnamed) == len(names):
            raise DataError(
                f"{path}: {misnamed[0]!r} is a {kind} by its content, and its name does not end in "
                f"{kind_layout.endings}; rename the files, or convert them to what their names say; "
                f"{kind_layout.expected}"
            )
        layout = folder_layout.read_layout(source, path.name, kind_layout)
        return INSPECTORS[kind](path, container, layout, source)


def _has_classes(names: tuple[str, ...]) -> bool:
    """Whether the files are arranged as split/class/file, which takes precedence over a table of files."""
    return any(name.count("/") > 1 and name.partition("/")[0] in folder_layout.SPLITS for name in names)


def _find_table(folder: Path) -> Path | None:
    """Return the table of `file,label` in a folder, if there is one.

    Raises
    ------
    DataError
        There are several such tables, and none is called labels.csv.
    """
    tables = [table for table in sorted(folder.iterdir()) if table.suffix.lower() == ".csv"] if folder.is_dir() else []
    file_tables = [
        table
        for table in tables
        if {folder_layout.FILE, folder_layout.LABEL} <= {*inspection.table_header(_first_bytes(table))}
    ]
    tables_named = [table for table in file_tables if table.name.lower() == "labels.csv"] or file_tables
    if len(tables_named) > 1:
        raise DataError(
            f"{folder}: {', '.join(table.name for table in tables_named)} all list files; give --data one of them"
        )
    return tables_named[0] if tables_named else None


def _most_common_kind(path: Path, source: Source, names: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the kind of most files and the names of the examined files of that kind."""
    visible = [name for name in names if not any(part[:1] in (".", "_") for part in name.split("/"))]
    names_by_kind: dict[str, list[str]] = {}
    other_contents: Counter[str] = Counter()
    for name in visible[:: max(1, len(visible) // MAX_FILES)]:
        start = _first_bytes(path / name) if path.is_dir() else _first_bytes_of_member(source, name)
        kind = kind_of(start, columns=1 if name.lower().endswith(folder_layout.RECORDINGS.suffixes) else 2)
        if kind in (None, "recording") and name.lower().endswith(folder_layout.TEXTS.suffixes):
            kind = "text" if table_inspection.is_text(start) else None  # a text may look like a table
        if kind:
            names_by_kind.setdefault(kind, []).append(name)
        else:
            other_contents[ARCHIVE if start.startswith(ZIP_SIGNATURE) else _describe_content(start)] += 1
    if not names_by_kind:
        description = (
            f"{len(visible)} files, most of them {other_contents.most_common(1)[0][0]}"
            if other_contents
            else "no file at all"
        )
        raise DataError(f"{path}: holds {description}; {EXPECTED}")
    return max(names_by_kind.items(), key=lambda item: len(item[1]))


def kind_of(start: bytes, columns: int = 2) -> str | None:
    """Return `picture`, `sound` or `recording` from the first bytes of a file, or None for anything else.

    A table with fewer than `columns` columns is not a recording.
    """
    if start.startswith(PICTURE_SIGNATURES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "picture"
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        return "sound"
    return "recording" if inspection.is_table(start, columns) else None


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, or none if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""


def _first_bytes_of_member(source: Source, name: str) -> bytes:
    """Return the first bytes of a member of a zip, or none if it cannot be read."""
    try:
        return source.read(name)[:HEAD_BYTES]
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
        return b""


def _describe_content(start: bytes) -> str:
    """Describe a file like `file_type.describe`, with more formats that a user may give as data."""
    if start.startswith(b"\x93NUMPY"):
        return "a single array (.npy): save it with its labels, np.savez('data.npz', x_train=…, y_train=…)"
    if start.startswith(b"PAR1"):
        return "a Parquet table: read it with pandas and save its columns with np.savez"
    if kind_of(start) == "recording":
        return "a table in text whose name does not end in .csv: rename it"
    if kind_of(start) == "sound":
        return "a single WAV file without a label track, NAME.txt beside it"
    if start.startswith(ZIP_SIGNATURE):
        return "a zip that is cut short or damaged; copy it again"
    return describe(start)
