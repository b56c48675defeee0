"""What the tasks' checks of labels share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError


def quote_names(names: Sequence[str], most: int = 5) -> str:
    """The first of them, quoted, and how many more."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def label_columns(name: str, y: np.ndarray, names: Sequence[str], what: str) -> np.ndarray:
    """`y` as (n, outputs), a column for each name; DataError where it has another number of them, or is no number."""
    table = y[:, None] if y.ndim == 1 else y
    if table.ndim != 2 or table.dtype.kind not in "iufb":
        raise DataError(f"{name}: labels are {y.dtype} of shape {y.shape}; {what}")
    if table.shape[1] != len(names):
        raise DataError(
            f"{name}: {table.shape[1]} values for each sample, and {len(names)} names in classes: "
            f"{quote_names(names)}; give one name for each column"
        )
    return table
