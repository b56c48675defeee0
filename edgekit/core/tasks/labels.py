"""Helpers for checking labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError


def quote_names(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, quoted, and how many more there are."""
    quoted = ", ".join(repr(name) for name in names[:limit])
    return quoted if len(names) <= limit else f"{quoted} and {len(names) - limit} more"


def label_columns(name: str, y: np.ndarray, names: Sequence[str], expected: str) -> np.ndarray:
    """Return `y` as (n, outputs), with a column for each name. `expected` is the advice in the error's message.

    Raises
    ------
    DataError
        The number of columns differs, or the labels are not numbers.
    """
    table = y[:, None] if y.ndim == 1 else y
    if table.ndim != 2 or table.dtype.kind not in "iufb":
        raise DataError(f"{name}: labels are {y.dtype} of shape {y.shape}; {expected}")
    if table.shape[1] != len(names):
        raise DataError(
            f"{name}: {table.shape[1]} values for each sample, and {len(names)} names in classes: "
            f"{quote_names(names)}; give one name for each column"
        )
    return table
