"""Inspect tables and texts: which columns are labels, features or texts, and how long the texts are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from edgekit.cli.init.inspect import CLOCKS, Findings
from edgekit.core.errors import DataError
from edgekit.data import folder_layout
from edgekit.data.sources.csv_rows import FILES, is_row_number
from edgekit.data.sources.text_table import DELIMITERS, read_rows
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.inputs.table import Table

CALLED = ("label", "labels", "class", "target", "category", "outcome", "y")
"""What the column of the labels is often called."""
SHOWN = 8


def is_rows(folder: Path) -> bool:
    """Whether a folder holds a train.csv, and so a table for each split."""
    return "train.csv" in _tables(folder)


def row_table(path: Path) -> Findings:
    """A .csv, or a folder with one for each split."""
    tables = _tables(path) if path.is_dir() else {"train.csv": path}
    found = _parsed(tables["train.csv"])
    label = _label(found)
    cells = [cell.strip() for cell in _column(found, label)]
    named = [name for name in found.header if name and name != label and not CLOCKS.fullmatch(name)]
    numbers = [name for name in named if any(map(table.is_number, _column(found, name)))]
    columns = [name for name in numbers if not is_row_number(found, name)]
    if not columns:
        raise DataError(f"{path}: no column of numbers beside {label!r}; write one for each feature, named in line 1")
    section = {"source": "csv_rows", "path": str(path), "label": label, "columns": columns}
    comments = {"label": "the column with the class or the value of each row", "columns": "the features, in this order"}
    shown = ", ".join(columns[:SHOWN]) + (", …" if len(columns) > SHOWN else "")
    words = f"a table of {len(found.rows):,} rows, {len(columns)} features ({shown}), labels in {label!r}"
    if unused := [name for name in found.header if name and name != label and name not in columns]:
        words += f"; left out, because they hold no numbers or count the rows: {', '.join(unused)}"
    splits = frozenset(FILES[name] for name in tables)
    return Findings(section, words, splits, comments, _numbers(cells), tuple(sorted(set(cells) - {""})))


def _tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by what they are called, in small letters."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {each.name.lower(): each for each in found if each.name.lower() in FILES and each.is_file()}


def _parsed(path: Path) -> Table:
    try:
        with open(path, "rb") as stream:
            found = table.parse(path.name, stream.read(table.LARGEST_BYTES))
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if not found.rows:
        raise DataError(f"{path}: no row behind its header; export it again")
    return found


def _label(found: Table) -> str:
    """The column that is called like a label, else the only one of words, else the last."""
    named = [name for name in found.header if name.lower() in CALLED]
    words = [name for name in found.header if name and not any(table.is_number(cell) for cell in _column(found, name))]
    return named[0] if named else words[0] if len(words) == 1 else found.header[-1]


def _column(found: Table, name: str) -> list[str]:
    place = found.header.index(name)
    return [row[place] for row in found.rows]


def _numbers(cells: list[str]) -> np.ndarray | None:
    """Labels that are all numbers, whole ones as integers; None for words."""
    if not all(map(table.is_number, cells)):
        return None
    values = np.array(cells, np.float64)
    whole = all(cell.removeprefix("-").isdecimal() for cell in cells)
    return values.astype(np.int64) if whole else values


TABLES = {".tsv": "tab", ".csv": "comma"}
"""By the end of a name, how its cells are parted, if its first line does not say otherwise."""
WORD = re.compile(r"\w+|[^\w\s]")
LETTERS = re.compile(r"[^\W\d_]+")
LEAST_WORDS = 2
"""Of letters, in the middle one of a column of texts; names of files and of things have one."""
PIECES_A_WORD = 1.3
"""About so many pieces has a word on average, and with this much room most texts are whole."""
LEAST, MOST = 16, 256
"""Tokens of a sample: more take longer, with the square of them in the attention."""
WHOLE = 0.95
"""Share of the texts that should not be cut."""
MOST_CLASSES = 200
FEW_A_CLASS = 2
"""Rows that a class has at least on average: a column with fewer names no classes."""
MOST_EMPTY = 0.05
"""Share of the cells of a column of classes that may be empty; in one that has more, they mean something else."""
MOST_ROWS = 20_000
HEADER = re.compile(
    r"(text|message|sentence|review|comment|content|body|label|class|category|target|sentiment|v\d)", re.I
)


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are text in UTF-8; a character may be cut at their end."""
    try:
        start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and b"\0" not in start
    return bool(start.strip()) and b"\0" not in start


def texts(path: Path, where: str, plan: folder_layout.FolderLayout, source: folder_layout.Source) -> Findings:
    """How many tokens most of them have."""
    from edgekit.cli.init.inspect import opened

    lengths = []
    for content in opened(plan, source):
        lengths.append(_words(content.decode("utf-8-sig", "replace")))
    if not lengths:
        raise DataError(f"{path}: none of its texts can be opened; check that they are not damaged")
    section = {"source": "text_folder", "path": str(path), **_tokens(lengths)}
    words = f"{where} of texts, {_middle(lengths)} words in the middle one"
    return Findings(section, words, frozenset(plan.names), _comments(lengths), classes=plan.classes)


def text_table(path: Path) -> Findings | None:
    """The columns of a table of texts; None where it looks like none."""
    content = path.read_bytes()
    delimiter = _delimiter(path, content)
    rows = []
    for _, cells in read_rows(path.name, content, DELIMITERS[delimiter]):
        rows.append(cells)
        if len(rows) > MOST_ROWS:
            break
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    rows = [cells for cells in rows if len(cells) == width]
    if width < 2 or len(rows) < 4:
        return None
    columns = list(zip(*rows, strict=True))
    text = max(range(width), key=lambda place: sum(map(len, columns[place])))
    labels = [place for place in range(width) if place != text and _names_classes(columns[place])]
    if not labels or _middle([len(LETTERS.findall(cell)) for cell in columns[text]]) < LEAST_WORDS:
        return None
    label = min(labels, key=lambda place: (_empty(columns[place]), len(set(columns[place]))))
    header = _has_header(columns[text], columns[label])
    body = rows[1 if header else 0 :]
    lengths = [_words(row[text]) for row in body]
    section = {
        "source": "text_table",
        "path": str(path),
        "delimiter": delimiter,
        "header": header,
        "text": rows[0][text].strip() if header else text + 1,
        "label": rows[0][label].strip() if header else label + 1,
        **_tokens(lengths),
    }
    classes = tuple(sorted({row[label].strip() for row in body} - {""}))
    comments = {
        **_comments(lengths),
        "text": "the column of the texts" if header else "the column of the texts, counted from 1",
        "label": "the column of the classes" if header else "the column of the classes, counted from 1",
    }
    words = f"a table of {len(body):,} texts, {_middle(lengths)} words in the middle one"
    return Findings(section, words, frozenset({"train"}), comments, classes=classes)


def _delimiter(path: Path, content: bytes) -> str:
    usual = TABLES[path.suffix.lower()]
    first = content.partition(b"\n")[0].decode("utf-8-sig", "replace")
    found = max(DELIMITERS, key=lambda name: (first.count(DELIMITERS[name]), name == usual))
    return usual if usual == "tab" and "\t" in first else found


def _names_classes(column: tuple[str, ...]) -> bool:
    names = {cell.strip() for cell in column[1:]} - {""}
    few = _empty(column) <= max(1, MOST_EMPTY * len(column))  # which the source names, each with its line
    return 1 < len(names) <= min(MOST_CLASSES, max(2, len(column) // FEW_A_CLASS)) and few


def _empty(column: tuple[str, ...]) -> int:
    return sum(not cell.strip() for cell in column)


def _has_header(text: tuple[str, ...], label: tuple[str, ...]) -> bool:
    """Whether the first row names its columns: its label is no class of any other row, or it reads like a name."""
    alone = label[0].strip() not in {"", *(cell.strip() for cell in label[1:])}
    return alone and (_words(text[0]) <= 2 or bool(HEADER.fullmatch(text[0].strip())))


def _words(text: str) -> int:
    return len(WORD.findall(text))


def _middle(lengths: list[int]) -> int:
    return sorted(lengths)[len(lengths) // 2]


def _tokens(lengths: list[int]) -> dict[str, int]:
    """A multiple of eight that leaves most texts whole."""
    most = sorted(lengths)[min(len(lengths) - 1, int(WHOLE * len(lengths)))]
    tokens = -(-round(most * PIECES_A_WORD + 2) // 8) * 8
    return {"tokens": max(LEAST, min(MOST, tokens))}


def _comments(lengths: list[int]) -> dict[str, str]:
    longest = max(lengths)
    return {"tokens": f"pieces of words; of longer texts the end is cut: the longest has {longest:,} words"}
