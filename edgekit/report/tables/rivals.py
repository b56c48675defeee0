"""What the winner is beside files that somebody else made."""

from __future__ import annotations

from edgekit.core.artifact import Artifact
from edgekit.report.formatting import Table, count, milliseconds, percent, points, speedup, times


def rivals(artifact: Artifact) -> Table:
    """Each rival, and what the winner is beside it; from the benchmark."""
    rows = [
        (
            row["name"],
            percent(row["accuracy_test"]),
            count(row["bytes"]),
            milliseconds(row["p50_ms"]),
            milliseconds(row["p95_ms"]),
            row["winner"],
            points(row["winner_gain_pp"]),
            times(row["winner_bytes_share"]),
            speedup(row["winner_speedup"], row["winner_speedup_low"], row["winner_speedup_high"]),
        )
        for row in artifact.metrics["rivals"]
    ]
    heads = ("rival", "test", "bytes", "p50, ms", "p95, ms", "the winner", "test, pp", "its bytes", "its speed")
    return Table(heads, rows, "" if rows else "the config names no rival")
