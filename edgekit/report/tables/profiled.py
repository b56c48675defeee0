"""Tables of what profile measured, and of what became of its predictions."""

from __future__ import annotations

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.profile import PredictedSpeedup
from edgekit.measure import forecast
from edgekit.report.formatting import Table, count, milliseconds, span, times


def session(artifact: Artifact) -> Table:
    """A session from the start of the process to its last answer, part by part."""
    found = artifact.metrics["session"]
    rows = [
        (name, milliseconds(value), f"{value / found['whole_ms']:.1%}") for name, value in found["parts_ms"].items()
    ]
    rows.append(("all parts", milliseconds(sum(found["parts_ms"].values())), f"{found['covered']:.2%}"))
    rows.append(("measured from outside", milliseconds(found["whole_ms"]), ""))
    stamped = found["stamped"]
    rows.append(
        ("a call with timestamps, against one without", times(stamped["ratio"]), span(stamped["low"], stamped["high"]))
    )
    return Table((f"one process, {found['calls']} answers", "ms", "share"), rows)


def ways(artifact: Artifact) -> Table:
    """The unmodified float network on every runtime."""
    rows = [
        (
            row["way"],
            milliseconds(row.get("p50_ms")),
            times(row.get("ratio")),
            span(row["ratio_low"], row["ratio_high"]) if "ratio" in row else "",
            count(row["bytes"]) if row.get("bytes") else "",
            row.get("reason", ""),
        )
        for row in artifact.metrics["ways"]
    ]
    over = "× eager" if artifact.metrics["ways"][0]["way"] == forecast.EAGER else "× baseline"
    return Table(("unmodified, float32", "p50, ms", over, "interval", "bytes", ""), rows)


def steps(artifact: Artifact) -> Table:
    """What to do next: against the bound first, then the largest predicted gain."""
    rows = [
        (place, row["title"], times(row["speedup"]), row["where"], row["why"])
        for place, row in enumerate(artifact.metrics["diagnosis"]["steps"], start=1)
    ]
    return Table(("", "next step", "speed-up of a call", "where", "because"), rows)


def predicted_rows(benchmark: Artifact) -> list[PredictedSpeedup]:
    """What profile predicted of each variant that was measured, in float and in int8, beside what it reached.

    Nothing where the two were measured on different machines.
    """
    profile = benchmark.ancestor("profile").metrics
    here = [found["conditions"] for found in (profile, benchmark.metrics)]
    if any(here[0][name] != here[1][name] for name in ("host", "cpu", "cores")):
        return []
    costs = {"baseline": profile}
    if (distilled := benchmark.made_by("distill")) and (pruned := benchmark.made_by("prune")):
        kept = next((row for row in pruned.metrics["structured_steps"] if row["kept"]), None)
        costs |= {"student": distilled.metrics["student_cost"], **({"pruned": kept} if kept else {})}
    moved = {
        name: {"macs": cost["macs"], "moved": cost["weight_bytes"] + cost["activation_bytes"]}
        for name, cost in costs.items()
    }
    return forecast.compare(profile, benchmark.metrics["rows"], moved)
