"""The heads of published detectors: the table of docs/reference/model-files.md, from what `make heads` measured."""

from __future__ import annotations

import json
from typing import Any

from docs.generate.blocks import PAGES
from docs.generate.tables import code
from docs.generate.tables import table as markdown

RESULTS = PAGES / "reference" / "heads.json"
HEADER = ("family", "exported by", "outputs", "what they hold", "the bundle reads", "boxes", "pixels", "probability")


def table() -> str:
    """One row for each family; `python -m tests.heads.compare` measures them."""
    rows = json.loads(RESULTS.read_text()).values()
    return markdown(HEADER, [_row(row) for row in rows])


def _row(row: dict[str, Any]) -> list[str]:
    outputs = ", ".join(code(" × ".join(map(str, shape))) for shape in row["outputs"])
    package = f"{row['package']} {row['version']}"
    return [
        row["family"], package, outputs, row["decoding"], _read(row), str(row["boxes"]), f"{row['pixels']:g}",
        f"{row['score']:g}",
    ]  # fmt: skip


def _read(row: dict[str, Any]) -> str:
    """What the runner gets from the file of the bundle."""
    codes = {
        "": "distances in strides, logits",
        "distances": "distributions of distances, logits",
        "anchors": "offsets from anchors, logits",
        "exponential": "offsets and logarithms, logits",
    }
    return f"cut: {codes[row['head']]}" if row["is_cut"] else "the outputs of the file"
