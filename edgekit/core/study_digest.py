"""The digest of a study, batch by batch: whoever writes a study and whoever reads it count the same."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.hashing import digest
from edgekit.core.schema.study import TrialRow


def chain_digest(before: str, rows: Sequence[TrialRow]) -> str:
    """The digest behind one more batch; before the first stands the study's key.

    What counts is, by number: parameters, state, values and constraints as told. Seconds and words do not count.
    """
    told = [
        [row["number"], row["parameters"], row["state"], row["values"], row["constraints"]]
        for row in sorted(rows, key=lambda row: row["number"])
    ]
    return digest([before, told])
