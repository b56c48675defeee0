"""Rows of a table as vectors: in a .csv with a header, each row is a sample and one column holds the label.

A folder or a zip holds train.csv and optionally validation.csv (or val.csv) and test.csv. If the path is a single file,
all its rows belong to train. Cells are read as on the device (`edgekit.runner.inputs.table`). An empty cell is an
error, because it is not a measurement.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, existing_path, file_stamps
from edgekit.data.tables import float_columns, number_columns, read_table
from edgekit.data.types import Pools, ProgressCallback, SourceConfig

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data.types import Split
    from edgekit.runner.inputs.table import Table

STEPS = ({"step": "decode_csv"}, {"step": "rows"})
TASKS = ("classification", "regression", "multi_label", "anomaly")
FILES = {"train.csv": "train", "validation.csv": "validation", "val.csv": "validation", "test.csv": "test"}
COLUMN_NAMED_TASKS = ("regression", "multi_label")
"""Tasks whose outputs are named after the columns of their labels."""


class CsvRowsConfig(SourceConfig):
    """Options of a table."""

    source: Literal["csv_rows"] = "csv_rows"
    path: PathText = Field(
        description="a .csv; or a folder or .zip with train.csv and, if you have them, validation.csv and test.csv"
    )
    label: str | list[str] = Field(
        min_length=1, description="column with a row's class or value; a list for several values, or labels of 0 and 1"
    )
    columns: list[str] | None = Field(
        None, min_length=1, description="columns to use as features, in this order; none: all others that hold numbers"
    )
    group: str | None = Field(
        None, min_length=1, description="column that says which rows belong together, such as a patient's name"
    )

    @property
    def labels(self) -> list[str]:
        """The columns that hold the labels."""
        return [self.label] if isinstance(self.label, str) else self.label

    @property
    def raw_shape(self) -> tuple[int, ...] | None:
        """(features,), if the config names the columns."""
        return (len(self.columns),) if self.columns else None

    @model_validator(mode="after")
    def _different(self) -> CsvRowsConfig:
        others = [*self.labels, *([self.group] if self.group else [])]
        used_columns = [*others, *(self.columns or [])]
        if duplicates := [name for name in used_columns if used_columns.count(name) > 1]:
            raise ValueError(f"names column {duplicates[0]!r} twice in label, columns and group; give each one use")
        if len(self.labels) > 1 and self.task not in COLUMN_NAMED_TASKS:
            raise ValueError(f"label names {len(self.labels)} columns; task {self.task} has one class per row")
        return self


def identity(config: CsvRowsConfig) -> list[object]:
    """Return the stamps of the files."""
    return [digest(file_stamps(existing_path(config.path, "data.path")))]


def read(config: CsvRowsConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of (n, features) float32, with rows in a fixed random order."""
    tables = _tables(existing_path(config.path, "data.path"))
    columns, notes = _features(next(iter(tables.values())), config)
    names = _classes(tables, config)
    groups = _groups(tables, config)
    splits: dict[str, Split] = {}
    for done, (split, table) in enumerate(tables.items(), 1):
        splits[split] = _split(table, config, columns, names, groups.get(split))
        if progress:
            progress(done, len(tables))
    three_splits = (splits["train"], splits.get("validation"), splits.get("test"))
    return Pools(*three_splits, names, "vector", tuple(notes), columns=tuple(columns), input_path=STEPS)


def _tables(path: Path) -> dict[str, Table]:
    """Return the table of each split. Raises DataError if there is no table for train."""
    from edgekit.data import archives

    if path.is_file() and not zipfile.is_zipfile(path):
        return {"train": _table(path.name, path.read_bytes)}
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        names = [name for name in source.listing.files if "/" not in name and name.lower() in FILES]
        tables: dict[str, Table] = {}
        for name in sorted(names, key=lambda name: list(FILES).index(name.lower())):
            split = FILES[name.lower()]
            if split in tables:
                raise DataError(f"{path.name}: {tables[split].name} and {name} are both {split}; keep one of them")
            tables[split] = _table(name, partial(source.read, name))
    if "train" not in tables:
        raise DataError(f"{path.name}: holds no train.csv; name the table itself, or call it train.csv")
    return tables


def _table(name: str, read: Callable[[], bytes]) -> Table:
    table = read_table(name, read, "give the samples as npz")
    if not table.rows:
        raise DataError(f"{name}: no rows after the header; export it again")
    return table


def _features(table: Table, config: CsvRowsConfig) -> tuple[list[str], list[str]]:
    """Return the columns to use as features, and notes.

    If the config names no columns, a note says which were chosen.
    """
    if config.columns:
        return config.columns, []
    columns, texts = number_columns(table, [*config.labels, config.group])
    if not columns:
        raise DataError(
            f"{table.name}: no column beside {config.labels[0]!r} holds a number; write decimals with a point"
        )
    skipped = f"; skipped, because they hold no numbers: {', '.join(texts)}" if texts else ""
    notes = [f"features: {', '.join(columns)}{skipped}"]
    if row_numbers := [name for name in columns if is_row_number(table, name)]:
        notes.append(
            f"{', '.join(row_numbers)}: rises by 1 from row to row like a row number and does not describe a sample; "
            "name the other columns in data.columns"
        )
    return columns, notes


def is_row_number(table: Table, column: str) -> bool:
    """Return whether a column numbers the rows, like an index."""
    place = table.header.index(column)
    cells = [row[place].strip() for row in table.rows]
    if len(cells) < 2 or not all(cell.isdecimal() for cell in cells):
        return False
    return [int(cell) - int(cells[0]) for cell in cells] == list(range(len(cells)))


def _classes(tables: dict[str, Table], config: CsvRowsConfig) -> tuple[str, ...]:
    """Return the classes as they are written in the table, sorted, numerically if all are integers.

    For a regression or several labels at once, return the label columns.
    """
    if config.task in COLUMN_NAMED_TASKS:
        return tuple(config.labels)
    cells = {cell for table in tables.values() for cell in _texts(table, config.labels[0], "label")}
    are_integers = all(cell.removeprefix("-").isdecimal() for cell in cells)
    return tuple(sorted(cells, key=int) if are_integers else sorted(cells))


def _groups(tables: dict[str, Table], config: CsvRowsConfig) -> dict[str, np.ndarray]:
    """Return the group number of each row, by split. Raises DataError if two files have rows of the same group."""
    import numpy as np

    if not config.group:
        return {}
    cells = {split: _texts(table, config.group, "group") for split, table in tables.items()}
    split_of_group: dict[str, str] = {}
    for split, names in cells.items():
        for name in dict.fromkeys(names):
            if split_of_group.setdefault(name, split) != split:
                both = f"{tables[split_of_group[name]].name} and {tables[split].name}"
                raise DataError(f"{both} have rows of {config.group} {name!r}; move all of them to one of the two")
    numbers = {name: number for number, name in enumerate(sorted(split_of_group))}
    return {split: np.array([numbers[name] for name in names], np.int64) for split, names in cells.items()}


def _split(
    table: Table, config: CsvRowsConfig, columns: list[str], names: tuple[str, ...], groups: np.ndarray | None
) -> Split:
    """Return the rows in random order, so that the first rows are representative, however many are used."""
    import numpy as np

    from edgekit.data.types import Split

    x = float_columns(table, columns)
    if config.task in COLUMN_NAMED_TASKS:
        y = float_columns(table, config.labels)
        if config.task == "multi_label":
            y = _binary_labels(table, y, config.labels)
    else:
        index = {name: label for label, name in enumerate(names)}
        y = np.array([index[cell] for cell in _texts(table, config.labels[0], "label")], np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    return Split(x[order], y[order], None if groups is None else groups[order])


def _binary_labels(table: Table, y: np.ndarray, columns: list[str]) -> np.ndarray:
    """Return labels of 0 and 1 as integers. Raises DataError for any other value."""
    import numpy as np

    bad = np.argwhere((y != 0) & (y != 1))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{table.name}, line {table.lines[row]}, column {columns[column]!r}: got {y[row, column]:g}; "
            "with several labels at once, each must be 0 or 1"
        )
    return y.astype(np.int64)


def _texts(table: Table, column: str, option: str) -> list[str]:
    """Return the cells of a column of names. Raises DataError if the column is missing or one of its cells is empty."""
    if table.header.count(column) != 1:
        problem = f"{table.header.count(column)} columns are" if column in table.header else "no column is"
        listed = ", ".join(map(repr, table.header[:12]))
        raise DataError(f"{table.name}: {problem} called {column!r}, as data.{option} says; its header is {listed}")
    position = table.header.index(column)
    cells = [row[position].strip() for row in table.rows]
    if "" in cells:
        raise DataError(
            f"{table.name}, line {table.lines[cells.index('')]}, column {column!r}: empty; "
            f"write the {option} of the row, or leave the row out"
        )
    return cells
