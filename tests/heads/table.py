"""Heads of detectors: it writes docs/reference/heads.json, of which the documentation has a table.

`python -m tests.heads.table [NAME …]` measures these families again, by default all, and leaves the others as they are.
`make heads` fails if a family is no longer as it stands there.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.heads.families import FAMILIES, Family
from tests.heads.measure import ROOT, Measured, measure

FILE = ROOT / "docs" / "reference" / "heads.json"
EQUAL, EQUAL_BEFORE, DIFFERS, REFUSED = "equal", "equal before suppression", "differs", "refused"
Row = dict[str, Any]


def state(measured: Measured) -> str:
    """Return whether the boxes are those of the package, before and after suppression, or the file is refused."""
    if measured.candidates is None or measured.boxes is None:
        return REFUSED
    if not measured.candidates.is_equal:
        return DIFFERS
    return EQUAL if measured.boxes.is_equal else EQUAL_BEFORE


def as_row(measured: Measured) -> Row:
    """Return what was found for a family as JSON values."""
    return {**asdict(measured), "state": state(measured)}


def rows() -> list[Row]:
    """Return the rows of the file, in the order of the families."""
    found = {row["family"]: row for row in json.loads(FILE.read_text())} if FILE.exists() else {}
    return [found[family.name] for family in FAMILIES if family.name in found]


def write(row: Row) -> None:
    """Put a row into the file, in place of that of the same family."""
    found = {each["family"]: each for each in rows()} | {row["family"]: row}
    ordered = [found[family.name] for family in FAMILIES if family.name in found]
    FILE.write_text(json.dumps(ordered, indent=2) + "\n")


def main() -> None:
    """Measure the families that the arguments name, and write each as soon as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(family.name for family in FAMILIES)])
    names = parser.parse_args().names
    archive = Path(os.environ["EDGEKIT_SHARED"]) / "data" / "bccd.zip"
    for family in FAMILIES:
        if not names or family.name in names:
            row = measured_row(family, archive)
            print(f"{family.name}: {row['state']}", flush=True)
            write(row)


def measured_row(family: Family, archive: Path) -> Row:
    """Measure a family in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="edgekit-heads-") as folder:
        return as_row(measure(family, Path(folder), archive))


if __name__ == "__main__":
    main()
