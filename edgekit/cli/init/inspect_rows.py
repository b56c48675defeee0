"""Inspect a table whose rows are samples: which column is the label, and which are features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.cli.init.findings import Findings
from edgekit.cli.init.inspect import CLOCKS
from edgekit.core.errors import DataError
from edgekit.data.sources.csv_rows import FILES, numbers_rows
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.inputs.table import Table

CALLED = ("label", "labels", "class", "target", "category", "outcome", "y")
"""What the column of the labels is often called."""
SHOWN = 8


def is_rows(folder: Path) -> bool:
    """Whether a folder holds a train.csv, and so a table for each split."""
    return "train.csv" in _tables(folder)


def rows(path: Path) -> Findings:
    """A .csv, or a folder with one for each split."""
    tables = _tables(path) if path.is_dir() else {"train.csv": path}
    found = _parsed(tables["train.csv"])
    label = _label(found)
    cells = [cell.strip() for cell in _column(found, label)]
    named = [name for name in found.header if name and name != label and not CLOCKS.fullmatch(name)]
    numbers = [name for name in named if any(map(table.is_number, _column(found, name)))]
    columns = [name for name in numbers if not numbers_rows(found, name)]
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
