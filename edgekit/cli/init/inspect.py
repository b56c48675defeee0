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
MOST_OPENED = 200
"""Files of a folder that are opened; the source reads all of them later, and refuses what differs."""
LARGEST_SIDE = 64
"""Of pictures as the network sees them: a first run should take minutes on a CPU."""
LONGEST_S = 10.0
LONGEST_WINDOW, USUAL_WINDOW = 512, 128
DELIMITERS = ",;\t"
SHARED = 0.1
"""Share of the files that must have the most common length for it to mean something."""
SPLITS = 4
SHOWN = 6
"""Rows of a text, headings included, that are read to recognise a table."""
CLOCKS = re.compile(r"(time(stamp)?|date(time)?|t|ts|index|sample|seconds?|ms|us|unnamed.*|)", re.IGNORECASE)
"""Columns that number the rows."""


def arrays(path: Path) -> Findings:
    """An .npz; its names are for the source to check, which knows them."""
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
        labels = None  # the source says what is wrong
    return Findings({"source": "npz", "path": str(path)}, "an .npz file", frozenset(splits), {}, labels, classes)


def pictures(path: Path, where: str, plan: FolderLayout, source: Source) -> Findings:
    """Size and colour of most of them."""
    sides: Counter[tuple[int, int]] = Counter()
    coloured = False
    for content in opened(plan, source):
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
                sides[picture.size] += 1
                coloured = coloured or not is_grey(picture)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            continue  # the source counts what it cannot read, and names it
    if not sides:
        raise DataError(f"{path}: none of its pictures can be opened; check that they are not damaged")
    (width, height), _ = sides.most_common(1)[0]
    size = int(np.clip(min(width, height), 4, LARGEST_SIDE))
    sizes = f"{width}×{height}" + (" and other sizes" if len(sides) > 1 else "")
    section = {"source": "image_folder", "path": str(path), "size": size, "channels": 3 if coloured else 1}
    colour = "in colour" if coloured else "grey"
    comments = {"size": f"the pictures are {sizes}; more pixels see more and take longer"}
    words = f"{where} of pictures, {sizes}, {colour}, seen as {size}×{size}"
    return Findings(section, words, frozenset(plan.names), comments, classes=plan.classes)


def is_grey(picture: Image.Image) -> bool:
    """Whether no pixel of it has a colour."""
    if picture.mode in ("1", "L", "LA"):
        return True
    pixels = np.asarray(picture.convert("RGB"))
    return bool((pixels == pixels[..., :1]).all())


def sounds(path: Path, where: str, plan: FolderLayout, source: Source) -> Findings:
    """Rate and length of most of them, from their headers."""
    rates: Counter[int] = Counter()
    lengths: list[float] = []
    for content in opened(plan, source):
        try:
            sound = wav.read_header("", io.BytesIO(content), len(content))
        except InputError:
            continue  # the source names the file
        rates[sound.rate_hz] += 1
        if sound.rate_hz:
            lengths.append(sound.samples / sound.rate_hz)
    if not lengths or not max(lengths):
        raise DataError(f"{path}: none of its sounds can be opened; check that they are not damaged")
    rate_hz = rates.most_common(1)[0][0]
    samples, which = _usual([round(seconds * rate_hz) for seconds in lengths])
    cut = min(samples, round(LONGEST_S * rate_hz))
    seconds = cut / rate_hz
    comments = {"seconds": f"{which}; a shorter sound is filled up with silence, of a longer one the rest is cut"}
    if len(rates) > 1:
        others = ", ".join(f"{count} at {rate} Hz" for rate, count in rates.most_common())
        comments["rate_hz"] = f"the rate of most ({others}); the others are resampled"
    section = {"source": "wav_folder", "path": str(path), "rate_hz": rate_hz, "seconds": seconds}
    words = f"{where} of sounds at {rate_hz:,} Hz, heard for {seconds:.4g} s"
    return Findings(section, words, frozenset(plan.names), comments, classes=plan.classes)


def _usual(lengths: list[int]) -> tuple[int, str]:
    """The most common length, or the median where lengths vary; and which of the two it is, as text."""
    ordered = sorted(length for length in lengths if length)
    length, count = max(Counter(ordered).items(), key=lambda item: (item[1], item[0]))
    if len(set(ordered)) == 1:
        return length, "the length of all"
    if count > max(1, SHARED * len(ordered)):
        return length, f"the length of most ({count} of {len(lengths)} examined)"
    return ordered[len(ordered) // 2], "they differ in length, and this is the middle one"


def header(start: bytes) -> list[str]:
    """The names in the first line of a table."""
    return [cell.strip() for row in _rows(start)[:1] for cell in row]


def is_table(start: bytes, columns: int = 2) -> bool:
    """Whether the first bytes of a file are names of so many columns at least, and cells of which some are numbers."""
    if b"\0" in start:
        return False
    rows = _rows(start)
    return len(rows) > 1 and len(rows[0]) >= columns and any(map(_is_number, itertools.chain(*rows[1:SHOWN])))


def recordings(path: Path, where: str, plan: FolderLayout, source: Source) -> Findings:
    """Columns of numbers, and how long the recordings are."""
    columns: list[str] = []
    unused: list[str] = []
    by_class: dict[str, list[int]] = {}
    for name, content in _opened_with_names(plan, source):
        rows = _rows(content)
        if len(rows) < 2:
            continue  # the source names the file
        if not columns:
            columns = _channels(rows)
            unused = [each.strip() for each in rows[0] if each.strip() and each.strip() not in columns]
        by_class.setdefault(name.rpartition("/")[0], []).append(len(rows) - 1)
    if not columns:
        raise DataError(
            f"{path}: no column of numbers under a name in the first line of its recordings; write one column for each "
            "channel, named in the first line: ax,ay,az"
        )
    lengths = [length for of in by_class.values() for length in of]
    usual, which = _usual(lengths)
    whole = len(set(lengths)) == 1 and 2 <= usual <= LONGEST_WINDOW
    # of the shortest quarter nothing is seen, but of every class as many as the splits need
    shortest = min(sorted(of)[max(0, len(of) - SPLITS) // 4] for of in by_class.values())
    window = usual if whole else max(2, min(USUAL_WINDOW, shortest))
    stride = window if whole else window // 2
    comments = {
        "columns": "the channels, in this order",
        "window": f"rows; the recordings have {usual:,}, {which}",
        "stride": "rows from the beginning of one window to that of the next",
    }
    section = {"source": "csv_windows", "path": str(path), "columns": columns, "window": window, "stride": stride}
    words = f"{where} of recordings, {len(columns)} columns ({', '.join(columns)}), in windows of {window} rows"
    if unused:
        words += f"; left out, because they hold no numbers or are clocks: {', '.join(unused)}"
    return Findings(section, words, frozenset(plan.names), comments, classes=plan.classes)


def _channels(rows: list[list[str]]) -> list[str]:
    """Names of the columns with a number somewhere: a gap in the first row is for the source to find."""
    titles, cells = [title.strip() for title in rows[0]], itertools.zip_longest(*rows[1:], fillvalue="")
    return [
        title
        for title, column in zip(titles, cells, strict=False)
        if any(map(_is_number, column)) and not CLOCKS.fullmatch(title)
    ]


def _rows(content: bytes) -> list[list[str]]:
    """The cells of a table in text; by the delimiter that parts its first line most."""
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


def opened(plan: FolderLayout, source: Source) -> Iterator[bytes]:
    """The content of some files of each split, evenly over them; what cannot be read is left to the source."""
    return (content for _, content in _opened_with_names(plan, source))


def _opened_with_names(plan: FolderLayout, source: Source) -> Iterator[tuple[str, bytes]]:
    """The same, with their names."""
    names = list(itertools.chain(*plan.names.values()))
    for name in names[:: max(1, len(names) // MOST_OPENED)]:
        try:
            yield name, source.read(name)
        except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error):
            continue


@dataclass(frozen=True, eq=False)
class Findings:
    """The source that reads the data, with its options, and a description in words.

    `splits` are those that it has already, `comments` are for the config, by option. `labels` are those of arrays,
    `classes` the names in them, or the folders'. `task` is the one that these data mean where none is named.
    """

    section: dict[str, Any]
    words: str
    splits: frozenset[str] = frozenset({"train"})
    comments: dict[str, str] = field(default_factory=dict)
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    task: Task = "classification"
