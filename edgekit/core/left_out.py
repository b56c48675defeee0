"""Describe left-out variants at the end of a run. This module imports nothing that is slow to import."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.schema.variants import LeftOutVariant

NOT_TRIED, FLOAT = "rests", "fp32"
"""The `kind` of a variant that was not tried because its float model is missing, and the precision of a float model.

`edgekit.targets` defines the same values, but this package must not import from it.
"""


def describe_left_out(rows: Sequence[LeftOutVariant]) -> list[str]:
    """Describe each failure in one line, with the names of the variants that were not tried because of it."""
    lines = []
    for row in rows:
        if row["kind"] == NOT_TRIED:
            continue
        dependents = [each["name"] for each in rows if each["kind"] == NOT_TRIED and _same_job(each, row)]
        note = f" (and with it {', '.join(dependents)})" if dependents and row["precision"] == FLOAT else ""
        lines.append(f"{row['name']}{note}: {row['reason']}")
    return lines


def _same_job(one: LeftOutVariant, other: LeftOutVariant) -> bool:
    return (one["model"], one["target"]) == (other["model"], other["target"])
