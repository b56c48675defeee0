"""Detectors of other packages whose boxes were compared: the table of docs/reference/model-files.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generate import tables

FILE = Path(__file__).parents[1] / "reference" / "heads.json"
HEADER = ("network", "package", "outputs of the file", "cut", "boxes", "largest differences", "result")


def table() -> str:
    """Return the table, from the file that `python -m tests.heads.table` writes."""
    return tables.table(HEADER, [_cells(row) for row in json.loads(FILE.read_text())])


def _cells(row: dict[str, Any]) -> list[str]:
    before, after = row["candidates"], row["boxes"]
    if before is None:
        return [row["family"], row["package"], "", "", "", "", f"{row['state']}: {row['refusal']}"]
    result = row["state"]
    masks = "" if before["masks"] is None else f", masks overlap by {before['masks']:.4f}"
    if after["missing"] or after["additional"]:
        counts = f"{after['missing']} of {after['boxes']} missing, {after['additional']} additional"
        result += f"; after it {counts}"
    if before["second_classes"]:
        result += f"; {before['second_classes']} second classes"
    return [
        row["family"],
        row["package"],
        row["form"],
        "yes" if row["is_cut"] else "no",
        f"{before['boxes']} in {before['pictures']} pictures",
        f"{before['pixels']:.2g} px, {before['score']:.1g}{masks}",
        result,
    ]
