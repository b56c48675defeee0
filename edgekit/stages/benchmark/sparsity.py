"""Sparsity: whether unstructured zeros pay, in time or in bytes, against the dense network.

Zeros shorten a call only where the kernels skip them, and a file only where it stores them as such (as
`convert.sparse_weights` does) or somebody compresses it, which a bundle does not. A sparse variant is rejected that is
neither surely faster nor, at the same speed, smaller, each by `tie_margin`. Its compressed size is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from edgekit.core.schema.decisions import AgainstDense
from edgekit.core.schema.variants import CheckedVariant
from edgekit.stages.benchmark.timings import Timings

DECISION = "sparsity without speed-up"
"""Name of the decision in the result."""
DENSE = {"sparse": "student"}
"""The network that a sparse one was made from."""


def against_dense(rows: Sequence[CheckedVariant], slow: Collection[str], timings: Timings) -> list[AgainstDense]:
    """Each sparse variant beside its dense counterpart, of the same precision and target: is it faster?

    A counterpart that is outside the budget itself is none: nobody could take it instead.
    """
    dense = {
        (row["model"], row["precision"], row["target"]): row
        for row in rows
        if row["inside_budget"] and row["name"] not in slow
    }
    return [
        _beside(row, dense[key], timings)
        for row in rows
        if (key := (DENSE.get(row["model"], ""), row["precision"], row["target"])) in dense
    ]


def without_speedup(compared: Iterable[AgainstDense]) -> list[str]:
    """Names of the sparse variants that are neither faster nor smaller, sorted."""
    return sorted(row["name"] for row in compared if not row["buys"])


def reason(name: str, compared: Iterable[AgainstDense], replaying: bool) -> str:
    """Why a variant without speed-up is rejected, with today's figures."""
    recorded = ", as recorded" if replaying else ""
    row = next((row for row in compared if row["name"] == name), None)
    if row is None:
        return f"no speed-up{recorded}"
    interval = f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
    return (
        f"no speed-up{recorded}: {row['ratio']:.2f}× ({interval}) as fast as {row['dense']}, "
        f"{100 * row['bytes_share']:.0f} % of its bytes, compressed {100 * row['zipped_share']:.0f} %"
    )


def _beside(row: CheckedVariant, dense: CheckedVariant, timings: Timings) -> AgainstDense:
    """`ratio`: how many times as fast as the dense one; both shares: bytes, and compressed ones, of that one's."""
    ratio = timings.ratio(dense["name"], row["name"])
    is_smaller = row["bytes"] * (1 + timings.tie_margin) < dense["bytes"]
    is_slower = timings.is_slower(timings.ratio(row["name"], dense["name"]))
    return {
        "name": row["name"],
        "dense": dense["name"],
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "bytes_share": row["bytes"] / dense["bytes"],
        "zipped_bytes": row["zipped_bytes"],
        "zipped_share": row["zipped_bytes"] / dense["zipped_bytes"],
        "buys": timings.is_slower(ratio) or (is_smaller and not is_slower),
    }
