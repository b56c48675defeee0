"""The digest of a study, batch by batch, which the writer and the reader of a study compute in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.hashing import digest
from edgekit.core.schema.study import TrialRow


def chain_digest(previous: str, rows: Sequence[TrialRow]) -> str:
    """Return the digest after one more batch. Before the first batch, the digest is the study's key.

    It covers the number, parameters, state, values and constraints of each trial, but not times and texts.
    """
    results = [
        [row["number"], row["parameters"], row["state"], row["values"], row["constraints"]]
        for row in sorted(rows, key=lambda row: row["number"])
    ]
    return digest([previous, results])
