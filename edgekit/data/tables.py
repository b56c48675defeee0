"""Read tables of numbers from .csv as the device does (`edgekit.runner.inputs.table`). Faults raise DataError."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgekit.core.errors import DataError
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.inputs.table import Table


def read_table(name: str, read: Callable[[], bytes], fix: str) -> Table:
    """Parse the table in the bytes that `read` returns.

    Raises
    ------
    DataError
        The bytes cannot be read, are not a table, or are too many. `fix` is the advice for the last case.
    """
    from edgekit.runner.inputs import table

    try:
        content = read()
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be read ({error}); copy it again") from None
    if len(content) > table.LARGEST_BYTES:
        raise DataError(f"{name}: more than {table.LARGEST_BYTES:,} bytes; {fix}")
    try:
        return table.parse(name, content)
    except InputError as error:
        raise DataError(str(error)) from None


def number_columns(table: Table, without: Sequence[str | None] = ()) -> tuple[list[str], list[str]]:
    """Return the named columns that hold a number in any row, and those that hold no number."""
    from edgekit.runner.inputs.table import is_number

    named = [(place, name) for place, name in enumerate(table.header) if name and name not in without]
    numbers = [name for place, name in named if any(is_number(row[place]) for row in table.rows)]
    return numbers, [name for _, name in named if name not in numbers]


def float_columns(table: Table, columns: Sequence[str]) -> np.ndarray:
    """Return the given columns as float32 (rows, columns)."""
    from edgekit.runner.inputs import table as tables

    try:
        return tables.floats(table, columns)
    except InputError as error:
        raise DataError(str(error)) from None
