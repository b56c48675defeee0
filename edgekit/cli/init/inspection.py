"""Inspect data of a known kind: read just enough of it to choose the options of its source."""

from __future__ import annotations

import csv
import io
import itertools
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.data import folder_layout
from edgekit.data.folder_layout import FolderLayout
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav
from edgekit.runner.inputs.picture import FORMATS
from edgekit.runner.inputs.table import with_decimal_points

if TYPE_CHECKING:
    from edgekit.core.tasks import Task


Source = folder_layout.Source
MAX_OPENED = 200
"""Number of files in a folder that are opened. The source later reads all files and refuses those that differ."""
MAX_SIDE = 64
"""Largest side of the pictures that the network sees, so that a first run takes only minutes on a CPU."""
MAX_SECONDS = 10.0
MAX_WINDOW, DEFAULT_WINDOW = 512, 128
DELIMITERS = ",;\t"
COMMON_LENGTH_SHARE = 0.1
"""The most common length is used only if at least this share of the files has it."""
SPLITS = 4
SNIFFED_ROWS = 6
"""Number of rows, with the header, that are read to recognize a table."""
ROW_NUMBER_COLUMNS = re.compile(
    r"(time(stamp)?|date(time)?|t|ts|index|sample|seconds?|ms|us|unnamed.*|)", re.IGNORECASE
)
"""Names of columns that number the rows."""


def inspect_arrays(path: Path) -> Findings:
    """Inspect an .npz file. Its source later checks the names of the arrays."""
    labels, classes, splits = None, None, set()
    try:
        with np.load(path, allow_pickle=False) as archive:
            inputs = [name for name in archive.files if name.startswith("x_")]
            splits = {name.removeprefix("x_").partition(".")[0] for name in inputs}
            if "y_train" in archive.files:
                labels = archive["y_train"]
            if "classes" in archive.files:
                classes = tuple(map(str, archive["classes"].ravel().tolist()))
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        labels = None  # the source reports the fault later
    return Findings({"source": "npz", "path": str(path)}, "an .npz file", frozenset(splits), {}, labels, classes)


def inspect_pictures(path: Path, container: str, layout: FolderLayout, source: Source) -> Findings:
    """Return findings about pictures: their most common size, and whether they have colours."""
    sides: Counter[tuple[int, int]] = Counter()
    coloured = False
    for content in sample_contents(layout, source):
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                sides[picture.size] += 1
                coloured = coloured or not is_grey(picture)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            continue  # the source reports files that it cannot read
    if not sides:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are not damaged")
    (width, height), _ = sides.most_common(1)[0]
    size = int(np.clip(min(width, height), 4, MAX_SIDE))
    sizes = f"{width}×{height}" + (" and other sizes" if len(sides) > 1 else "")
    section = {"source": "image_folder", "path": str(path), "size": size, "channels": 3 if coloured else 1}
    side = min(width, height)
    colour = "in colour" if coloured else "grey"
    comments = {"size": f"the pictures are {sizes}; more pixels show more detail and take longer"}
    description = f"{container} of pictures, {sizes}, {colour}, seen as {size}×{size}"
    samples = len(layout.names.get("train", ()))
    return Findings(
        section, description, frozenset(layout.names), comments, classes=layout.classes, samples=samples, side=side
    )


def is_grey(picture: Image.Image) -> bool:
    """Whether the picture is grey, so that no pixel has a colour."""
    if picture.mode in ("1", "L", "LA"):
        return True
    pixels = np.asarray(picture.convert("RGB"))
    return bool((pixels == pixels[..., :1]).all())


def inspect_sounds(path: Path, container: str, layout: FolderLayout, source: Source) -> Findings:
    """Return findings about sounds: the most common rate and the typical length, from their headers."""
    rates: Counter[int] = Counter()
    lengths: list[float] = []
    for content in sample_contents(layout, source):
        try:
            sound = wav.read_header("", io.BytesIO(content), len(content))
        except InputError:
            continue  # the source reports the file
        rates[sound.rate_hz] += 1
        if sound.rate_hz:
            lengths.append(sound.samples / sound.rate_hz)
    if not lengths or not max(lengths):
        raise DataError(f"{path}: none of its sounds can be opened; check that they are not damaged")
    rate_hz = rates.most_common(1)[0][0]
    samples, explanation = _typical_length([round(seconds * rate_hz) for seconds in lengths])
    used_samples = min(samples, round(MAX_SECONDS * rate_hz))
    seconds = used_samples / rate_hz
    comments = {"seconds": f"{explanation}; a shorter sound is padded with silence, and a longer one is cut"}
    if len(rates) > 1:
        others = ", ".join(f"{count} at {rate} Hz" for rate, count in rates.most_common())
        comments["rate_hz"] = f"the rate of most ({others}); the others are resampled"
    section = {"source": "wav_folder", "path": str(path), "rate_hz": rate_hz, "seconds": seconds}
    description = f"{container} of sounds at {rate_hz:,} Hz, of which {seconds:.4g} s are used"
    return Findings(section, description, frozenset(layout.names), comments, classes=layout.classes)


def _typical_length(lengths: list[int]) -> tuple[int, str]:
    """Return the most common length, or the median if lengths vary, and a text that says which one it is."""
    nonzero = sorted(length for length in lengths if length)
    length, count = max(Counter(nonzero).items(), key=lambda item: (item[1], item[0]))
    if len(set(nonzero)) == 1:
        return length, "the length of all"
    if count > max(1, COMMON_LENGTH_SHARE * len(nonzero)):
        return length, f"the length of most ({count} of {len(lengths)} examined)"
    return nonzero[len(nonzero) // 2], "lengths vary, and this is the median"


def table_header(start: bytes) -> list[str]:
    """Return the names in the first line of a table."""
    return [cell.strip() for row in _table_rows(start)[:1] for cell in row]


def is_table(start: bytes, columns: int = 2) -> bool:
    """Whether the first bytes of a file hold a header of at least `columns` names and rows with some numbers."""
    if b"\0" in start:
        return False
    rows = _table_rows(start)
    return len(rows) > 1 and len(rows[0]) >= columns and any(map(_is_number, itertools.chain(*rows[1:SNIFFED_ROWS])))


def inspect_recordings(path: Path, container: str, layout: FolderLayout, source: Source) -> Findings:
    """Return findings about recordings: the columns that hold numbers, and the length of a window."""
    columns: list[str] = []
    skipped: list[str] = []
    by_class: dict[str, list[int]] = {}
    for name, content in _sample_files(layout, source):
        rows = _table_rows(content)
        if len(rows) < 2:
            continue  # the source reports the file
        if not columns:
            columns = _numeric_columns(rows)
            skipped = [title.strip() for title in rows[0] if title.strip() and title.strip() not in columns]
        by_class.setdefault(name.rpartition("/")[0], []).append(len(rows) - 1)
    if not columns:
        raise DataError(
            f"{path}: no column of numbers under a name in the first line of its recordings; write one column for each "
            "channel, named in the first line: ax,ay,az"
        )
    lengths = [length for class_lengths in by_class.values() for length in class_lengths]
    typical, explanation = _typical_length(lengths)
    is_one_window = len(set(lengths)) == 1 and 2 <= typical <= MAX_WINDOW
    # A recording that is shorter than a window is skipped. The window may be longer than a quarter of a class's
    # recordings, because the other recordings are enough for the splits.
    shortest = min(
        sorted(class_lengths)[max(0, len(class_lengths) - SPLITS) // 4] for class_lengths in by_class.values()
    )
    window = typical if is_one_window else max(2, min(DEFAULT_WINDOW, shortest))
    stride = window if is_one_window else window // 2
    comments = {
        "columns": "the channels, in this order",
        "window": f"rows; the recordings have {typical:,}, {explanation}",
        "stride": "rows from the beginning of one window to that of the next",
    }
    section = {"source": "csv_windows", "path": str(path), "columns": columns, "window": window, "stride": stride}
    description = (
        f"{container} of recordings, {len(columns)} columns ({', '.join(columns)}), in windows of {window} rows"
    )
    if skipped:
        description += f"; left out, because they hold no numbers or are clocks: {', '.join(skipped)}"
    return Findings(section, description, frozenset(layout.names), comments, classes=layout.classes)


def _numeric_columns(rows: list[list[str]]) -> list[str]:
    """Return the names of columns that hold a number in any row, because the first row may have gaps."""
    titles, cells = [title.strip() for title in rows[0]], itertools.zip_longest(*rows[1:], fillvalue="")
    return [
        title
        for title, column in zip(titles, cells, strict=False)
        if any(map(_is_number, column)) and not ROW_NUMBER_COLUMNS.fullmatch(title)
    ]


def _table_rows(content: bytes) -> list[list[str]]:
    """Return the cells of a text table, using the delimiter that occurs most often in its first line."""
    text = content.decode("utf-8-sig", "replace")
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [with_decimal_points(row, delimiter) for row in rows if row]
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def sample_contents(layout: FolderLayout, source: Source) -> Iterator[bytes]:
    """Yield the contents of some files, spread evenly over the splits.

    Unreadable files are skipped; the source reports them.
    """
    return (content for _, content in _sample_files(layout, source))


def _sample_files(layout: FolderLayout, source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield the contents that `sample_contents` yields, each with the name of its file."""
    names = list(itertools.chain(*layout.names.values()))
    for name in names[:: max(1, len(names) // MAX_OPENED)]:
        try:
            yield name, source.read(name)
        except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
            continue


@dataclass(frozen=True, eq=False)
class Findings:
    """Findings about data: the source that reads them, its options, and a description in words.

    `splits` are the splits that the data already have, and `comments` are for the config, by option. `labels` are the
    labels in arrays or in a table. `classes` are the names of the classes, if the data show them. `task` is used if the
    user names no task. `samples` is the number of pictures in the train split, and `side` the shorter side of most
    pictures in pixels, where they are known. `keypoints` is the number of keypoints that the annotations of boxes
    declare, and `has_masks` says whether each box has a mask. `starts_pretrained` says that the size in `section` is
    that for a detector on a trained backbone.
    """

    section: dict[str, Any]
    description: str
    splits: frozenset[str] = frozenset({"train"})
    comments: dict[str, str] = field(default_factory=dict)
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    task: Task = "classification"
    samples: int = 0
    side: int = 0
    keypoints: int = 0
    has_masks: bool = False
    starts_pretrained: bool = False
