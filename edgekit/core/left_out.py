"""What a conversion left out, in lines: for whatever tells a run that ended. It imports nothing that is slow."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.schema.variants import LeftOutVariant

NOT_TRIED, FLOAT = "rests", "fp32"
"""The kind of what is not tried since the float model is not there; as `edgekit.targets` has them, which lies above."""


def describe_left_out(rows: Sequence[LeftOutVariant]) -> list[str]:
    """Each failure of `rows` in one line, with the names of what is made from it and so was not tried."""
    found = []
    for row in rows:
        if row["kind"] == NOT_TRIED:
            continue
        of_it = [each["name"] for each in rows if each["kind"] == NOT_TRIED and _same_job(each, row)]
        more = f" (and with it {', '.join(of_it)})" if of_it and row["precision"] == FLOAT else ""
        found.append(f"{row['name']}{more}: {row['reason']}")
    return found


def _same_job(one: LeftOutVariant, other: LeftOutVariant) -> bool:
    return (one["model"], one["target"]) == (other["model"], other["target"])
