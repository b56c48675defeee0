"""Rows of a table as vectors: a .csv with a header, in which each row is a sample and a column is its label.

A folder or a zip holds train.csv and, if there, validation.csv (or val.csv) and test.csv; one file is all train. A cell
is read as the device reads it (`edgekit.runner.inputs.table`). An empty cell is an error: a gap is no measurement.
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
from edgekit.data.paths import PathText, existing_path, file_stamps
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
"""Tasks whose outputs are called as the columns of their labels."""


class CsvRowsConfig(SourceConfig):
    """Options of a table."""

    source: Literal["csv_rows"] = "csv_rows"
    path: PathText = Field(
        description="a .csv; or a folder or .zip with train.csv and, if there, validation.csv and test.csv"
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
        """The columns of the labels."""
        return [self.label] if isinstance(self.label, str) else self.label

    @property
    def raw_shape(self) -> tuple[int, ...] | None:
        """(features,), where they are named."""
        return (len(self.columns),) if self.columns else None

    @model_validator(mode="after")
    def _different(self) -> CsvRowsConfig:
        others = [*self.labels, *([self.group] if self.group else [])]
        named = [*others, *(self.columns or [])]
        if twice := [name for name in named if named.count(name) > 1]:
            raise ValueError(f"names column {twice[0]!r} twice in label, columns and group; give each one use")
        if len(self.labels) > 1 and self.task not in COLUMN_NAMED_TASKS:
            raise ValueError(f"label names {len(self.labels)} columns; a {self.task} has one class a row")
        return self


def identity(config: CsvRowsConfig) -> list[object]:
    """The files, by what the file system says of them."""
    return [digest(file_stamps(existing_path(config.path, "data.path")))]


def read(config: CsvRowsConfig, progress: ProgressCallback | None = None) -> Pools:
    """Pools of (n, features) float32, the rows in a fixed mixed order."""
    tables = _tables(existing_path(config.path, "data.path"))
    columns, notes = _features(next(iter(tables.values())), config)
    names = _classes(tables, config)
    marks = _groups(tables, config)
    splits: dict[str, Split] = {}
    for done, (split, table) in enumerate(tables.items(), 1):
        splits[split] = _split(table, config, columns, names, marks.get(split))
        if progress:
            progress(done, len(tables))
    given = (splits["train"], splits.get("validation"), splits.get("test"))
    return Pools(*given, names, "vector", tuple(notes), columns=tuple(columns), input_path=STEPS)


def _tables(path: Path) -> dict[str, Table]:
    """The table of each split; DataError where there is none of train."""
    from edgekit.data import archives

    if path.is_file() and not zipfile.is_zipfile(path):
        return {"train": _table(path.name, path.read_bytes)}
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        names = [name for name in source.listing().files if "/" not in name and name.lower() in FILES]
        found: dict[str, Table] = {}
        for name in sorted(names, key=lambda name: list(FILES).index(name.lower())):
            split = FILES[name.lower()]
            if split in found:
                raise DataError(f"{path.name}: {found[split].name} and {name} are both {split}; keep one of them")
            found[split] = _table(name, partial(source.read, name))
    if "train" not in found:
        raise DataError(f"{path.name}: holds no train.csv; name the table itself, or call it train.csv")
    return found


def _table(name: str, read: Callable[[], bytes]) -> Table:
    found = read_table(name, read, "give the samples as npz")
    if not found.rows:
        raise DataError(f"{name}: no row behind its header; export it again")
    return found


def _features(table: Table, config: CsvRowsConfig) -> tuple[list[str], list[str]]:
    """The columns of the features, and a note on which were taken where the config names none."""
    if config.columns:
        return config.columns, []
    columns, texts = number_columns(table, [*config.labels, config.group])
    if not columns:
        raise DataError(
            f"{table.name}: no column beside {config.labels[0]!r} holds a number; write decimals with a point"
        )
    passed = f"; skipped, for they hold no numbers: {', '.join(texts)}" if texts else ""
    notes = [f"features: {', '.join(columns)}{passed}"]
    if counts := [name for name in columns if is_row_number(table, name)]:
        notes.append(
            f"{', '.join(counts)}: rises by 1 from row to row, as a row number does, and says nothing of a sample; "
            "name the other columns in data.columns"
        )
    return columns, notes


def is_row_number(table: Table, column: str) -> bool:
    """Whether a column counts the rows, as an index does."""
    place = table.header.index(column)
    cells = [row[place].strip() for row in table.rows]
    if len(cells) < 2 or not all(cell.isdecimal() for cell in cells):
        return False
    return [int(cell) - int(cells[0]) for cell in cells] == list(range(len(cells)))


def _classes(tables: dict[str, Table], config: CsvRowsConfig) -> tuple[str, ...]:
    """Names of the classes as they are written, numbers in their order; else the columns of the labels."""
    if config.task in COLUMN_NAMED_TASKS:
        return tuple(config.labels)
    found = {cell for table in tables.values() for cell in _texts(table, config.labels[0], "label")}
    numbers = all(cell.removeprefix("-").isdecimal() for cell in found)
    return tuple(sorted(found, key=int) if numbers else sorted(found))


def _groups(tables: dict[str, Table], config: CsvRowsConfig) -> dict[str, np.ndarray]:
    """By split, the number of each row's group; DataError for a group of which two files have rows."""
    import numpy as np

    if not config.group:
        return {}
    cells = {split: _texts(table, config.group, "group") for split, table in tables.items()}
    homes: dict[str, str] = {}
    for split, names in cells.items():
        for name in dict.fromkeys(names):
            if homes.setdefault(name, split) != split:
                both = f"{tables[homes[name]].name} and {tables[split].name}"
                raise DataError(f"{both} have rows of {config.group} {name!r}; move all of them to one of the two")
    numbers = {name: number for number, name in enumerate(sorted(homes))}
    return {split: np.array([numbers[name] for name in names], np.int64) for split, names in cells.items()}


def _split(
    table: Table, config: CsvRowsConfig, columns: list[str], names: tuple[str, ...], groups: np.ndarray | None
) -> Split:
    """Its rows, mixed, so that any prefix is a fair sample."""
    import numpy as np

    from edgekit.data.types import Split

    x = float_columns(table, columns)
    if config.task in COLUMN_NAMED_TASKS:
        y = float_columns(table, config.labels)
        if config.task == "multi_label":
            y = _whole(table, y, config.labels)
    else:
        index = {name: label for label, name in enumerate(names)}
        y = np.array([index[cell] for cell in _texts(table, config.labels[0], "label")], np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    return Split(x[order], y[order], None if groups is None else groups[order])


def _whole(table: Table, y: np.ndarray, columns: list[str]) -> np.ndarray:
    """Labels of 0 and 1 as integers."""
    import numpy as np

    bad = np.argwhere((y != 0) & (y != 1))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{table.name}, line {table.lines[row]}, column {columns[column]!r}: got {y[row, column]:g}; "
            "several labels at once are 0 or 1 each"
        )
    return y.astype(np.int64)


def _texts(table: Table, column: str, option: str) -> list[str]:
    """The cells of a column of names; DataError for an empty one, and for a column that is not there."""
    if table.header.count(column) != 1:
        many = f"{table.header.count(column)} columns are" if column in table.header else "no column is"
        shown = ", ".join(map(repr, table.header[:12]))
        raise DataError(f"{table.name}: {many} called {column!r}, as data.{option} says; its header is {shown}")
    place = table.header.index(column)
    cells = [row[place].strip() for row in table.rows]
    if "" in cells:
        raise DataError(
            f"{table.name}, line {table.lines[cells.index('')]}, column {column!r}: empty; "
            f"write the {option} of the row, or leave the row out"
        )
    return cells
