"""Inspect tables and texts: which columns are labels, features or texts, and how long the texts are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from edgekit.cli.init.inspection import ROW_NUMBER_COLUMNS, Findings
from edgekit.core.errors import DataError
from edgekit.data import folder_layout
from edgekit.data.sources.csv_rows import FILES, is_row_number
from edgekit.data.sources.text_table import DELIMITERS, read_rows
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.inputs.table import Table

LABEL_NAMES = ("label", "labels", "class", "target", "category", "outcome", "y")
"""Common names for the column of labels."""
MAX_LISTED = 8


def has_row_tables(folder: Path) -> bool:
    """Whether a folder holds a train.csv and therefore one table per split."""
    return "train.csv" in _split_tables(folder)


def inspect_row_table(path: Path) -> Findings:
    """Inspect a .csv file, or a folder with one for each split."""
    tables = _split_tables(path) if path.is_dir() else {"train.csv": path}
    table_of_train = _parse_table(tables["train.csv"])
    label = _label_column(table_of_train)
    cells = [cell.strip() for cell in _column(table_of_train, label)]
    candidates = [
        name for name in table_of_train.header if name and name != label and not ROW_NUMBER_COLUMNS.fullmatch(name)
    ]
    numbers = [name for name in candidates if any(map(table.is_number, _column(table_of_train, name)))]
    columns = [name for name in numbers if not is_row_number(table_of_train, name)]
    if not columns:
        raise DataError(f"{path}: no column of numbers beside {label!r}; write one for each feature, named in line 1")
    section = {"source": "csv_rows", "path": str(path), "label": label, "columns": columns}
    comments = {"label": "the column with the class or the value of each row", "columns": "the features, in this order"}
    listed = ", ".join(columns[:MAX_LISTED]) + (", …" if len(columns) > MAX_LISTED else "")
    description = (
        f"a table of {len(table_of_train.rows):,} rows, {len(columns)} features ({listed}), labels in {label!r}"
    )
    if unused := [name for name in table_of_train.header if name and name != label and name not in columns]:
        description += f"; left out, because they hold no numbers or count the rows: {', '.join(unused)}"
    splits = frozenset(FILES[name] for name in tables)
    return Findings(section, description, splits, comments, _as_numbers(cells), tuple(sorted(set(cells) - {""})))


def _split_tables(folder: Path) -> dict[str, Path]:
    """Return the tables of a folder by their names in lower case."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name.lower(): path for path in paths if path.name.lower() in FILES and path.is_file()}


def _parse_table(path: Path) -> Table:
    try:
        with open(path, "rb") as stream:
            parsed = table.parse(path.name, stream.read(table.LARGEST_BYTES))
    except InputError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if not parsed.rows:
        raise DataError(f"{path}: no rows after the header; export it again")
    return parsed


def _label_column(parsed: Table) -> str:
    """Return the column with a name like a label's, or else the only column of words, or else the last column."""
    label_names = [name for name in parsed.header if name.lower() in LABEL_NAMES]
    text_columns = [
        name for name in parsed.header if name and not any(table.is_number(cell) for cell in _column(parsed, name))
    ]
    return label_names[0] if label_names else text_columns[0] if len(text_columns) == 1 else parsed.header[-1]


def _column(parsed: Table, name: str) -> list[str]:
    position = parsed.header.index(name)
    return [row[position] for row in parsed.rows]


def _as_numbers(cells: list[str]) -> np.ndarray | None:
    """Return labels that are all numbers, as integers if possible, or None if there are words."""
    if not all(map(table.is_number, cells)):
        return None
    values = np.array(cells, np.float64)
    are_integers = all(cell.removeprefix("-").isdecimal() for cell in cells)
    return values.astype(np.int64) if are_integers else values


DELIMITER_BY_SUFFIX = {".tsv": "tab", ".csv": "comma"}
"""The default delimiter by suffix, which is used unless the first line shows a different one."""
WORD = re.compile(r"\w+|[^\w\s]")
LETTERS = re.compile(r"[^\W\d_]+")
MIN_WORDS = 2
"""Smallest number of words in the median cell of a column of texts. File names and other names have only one word."""
TOKENS_PER_WORD = 1.3
"""Assumed number of tokens per word, so that most texts fit completely."""
MIN_TOKENS, MAX_TOKENS = 16, 256
"""Limits of the number of tokens in a sample. It is limited because the time of attention grows with its square."""
UNCUT_SHARE = 0.95
"""Share of the texts that should not be truncated."""
MAX_CLASSES = 200
MIN_ROWS_PER_CLASS = 2
"""Smallest average number of rows per class. A column with fewer rows per name does not hold classes."""
MAX_EMPTY_SHARE = 0.05
"""Largest share of empty cells in a column of classes."""
MAX_ROWS = 20_000
HEADER_WORDS = re.compile(
    r"(text|message|sentence|review|comment|content|body|label|class|category|target|sentiment|v\d)", re.I
)


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 text. The last character may be cut off."""
    try:
        start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and b"\0" not in start
    return bool(start.strip()) and b"\0" not in start


def inspect_texts(
    path: Path, container: str, layout: folder_layout.FolderLayout, source: folder_layout.Source
) -> Findings:
    """Inspect a folder of texts, and find how many tokens most texts have."""
    from edgekit.cli.init.inspection import sample_contents

    lengths = []
    for content in sample_contents(layout, source):
        lengths.append(_word_count(content.decode("utf-8-sig", "replace")))
    if not lengths:
        raise DataError(f"{path}: none of its texts can be opened; check that they are not damaged")
    section = {"source": "text_folder", "path": str(path), **_token_option(lengths)}
    description = f"{container} of texts, {_median(lengths)} words in the median one"
    return Findings(section, description, frozenset(layout.names), _comments(lengths), classes=layout.classes)


def inspect_text_table(path: Path) -> Findings | None:
    """Find the columns of a table of texts, or return None if it does not look like one."""
    content = path.read_bytes()
    delimiter = _delimiter(path, content)
    rows = []
    for _, cells in read_rows(path.name, content, DELIMITERS[delimiter]):
        rows.append(cells)
        if len(rows) > MAX_ROWS:
            break
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    rows = [cells for cells in rows if len(cells) == width]
    if width < 2 or len(rows) < 4:
        return None
    columns = list(zip(*rows, strict=True))
    text = max(range(width), key=lambda position: sum(map(len, columns[position])))
    labels = [position for position in range(width) if position != text and _is_class_column(columns[position])]
    if not labels or _median([len(LETTERS.findall(cell)) for cell in columns[text]]) < MIN_WORDS:
        return None
    label = min(labels, key=lambda position: (_empty_cells(columns[position]), len(set(columns[position]))))
    header = _has_header(columns[text], columns[label])
    body = rows[1 if header else 0 :]
    lengths = [_word_count(row[text]) for row in body]
    section = {
        "source": "text_table",
        "path": str(path),
        "delimiter": delimiter,
        "header": header,
        "text": rows[0][text].strip() if header else text + 1,
        "label": rows[0][label].strip() if header else label + 1,
        **_token_option(lengths),
    }
    classes = tuple(sorted({row[label].strip() for row in body} - {""}))
    comments = {
        **_comments(lengths),
        "text": "the column with the texts" if header else "the column with the texts, counted from 1",
        "label": "the column with the classes" if header else "the column with the classes, counted from 1",
    }
    description = f"a table of {len(body):,} texts, {_median(lengths)} words in the median one"
    return Findings(section, description, frozenset({"train"}), comments, classes=classes)


def _delimiter(path: Path, content: bytes) -> str:
    default = DELIMITER_BY_SUFFIX[path.suffix.lower()]
    first = content.partition(b"\n")[0].decode("utf-8-sig", "replace")
    best = max(DELIMITERS, key=lambda name: (first.count(DELIMITERS[name]), name == default))
    return default if default == "tab" and "\t" in first else best


def _is_class_column(column: tuple[str, ...]) -> bool:
    names = {cell.strip() for cell in column[1:]} - {""}
    # A few empty cells are allowed here, because the source reports each of them by its line.
    has_few_empty = _empty_cells(column) <= max(1, MAX_EMPTY_SHARE * len(column))
    return 1 < len(names) <= min(MAX_CLASSES, max(2, len(column) // MIN_ROWS_PER_CLASS)) and has_few_empty


def _empty_cells(column: tuple[str, ...]) -> int:
    return sum(not cell.strip() for cell in column)


def _has_header(text: tuple[str, ...], label: tuple[str, ...]) -> bool:
    """Whether the first row is a header: its label is no other row's class, and its text looks like a column name."""
    is_unique = label[0].strip() not in {"", *(cell.strip() for cell in label[1:])}
    return is_unique and (_word_count(text[0]) <= 2 or bool(HEADER_WORDS.fullmatch(text[0].strip())))


def _word_count(text: str) -> int:
    return len(WORD.findall(text))


def _median(lengths: list[int]) -> int:
    return sorted(lengths)[len(lengths) // 2]


def _token_option(lengths: list[int]) -> dict[str, int]:
    """Return a multiple of eight that leaves most texts untruncated."""
    length = sorted(lengths)[min(len(lengths) - 1, int(UNCUT_SHARE * len(lengths)))]
    tokens = -(-round(length * TOKENS_PER_WORD + 2) // 8) * 8
    return {"tokens": max(MIN_TOKENS, min(MAX_TOKENS, tokens))}


def _comments(lengths: list[int]) -> dict[str, str]:
    longest = max(lengths)
    return {"tokens": f"pieces of words; longer texts are truncated, and the longest has {longest:,} words"}
