"""What notebook 02 shows of the choice between networks, before any of them was taught."""

from __future__ import annotations

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.training import CandidatePoint, ShortlistRow, ShownCandidate
from edgekit.report.formatting import Table, count, milliseconds, percent


def candidates(artifact: Artifact) -> Table:
    """Every candidate for the student: its costs, its p50 on every target untrained, and what became of it.

    What could not be converted, and so was not timed, stands behind that.
    """
    rows = artifact.metrics["candidates"]
    if not rows:
        return Table(("candidates",), [("the config names one student: nothing to choose",)])
    files = list(dict.fromkeys((file["target"], file["precision"]) for row in rows for file in row["timed"]))
    heads = ("candidate", "parameters", "MACs", "bytes", *map(" ".join, files), "best", "validation", "")
    rows = [
        (
            row["name"],
            count(row["parameters"]),
            count(row["macs"]),
            count(min(row["bytes"].values(), default=None)),
            *_times(row, files),
            milliseconds(row["best"]["p50_ms"] if row["best"] else None),
            percent(row["validation_accuracy"]),
            "; ".join(["the student" if row["kept"] else row["reason"], *_lost(row)]),
        )
        for row in rows
    ]
    return Table(heads, rows, _title(artifact.metrics["shortlist"]))


def _times(row: ShownCandidate, files: list[tuple[str, str]]) -> list[str]:
    """The p50 of each file, a dash for one that could not be made."""
    found = {(file["target"], file["precision"]): file["p50_ms"] for file in row["timed"]}
    return [milliseconds(found.get(file)) for file in files]


def _lost(row: ShownCandidate) -> list[str]:
    return [f"{one['target']} {one['precision']} left out: {one['reason']}" for one in row["left_out"]]


def candidate_points(artifact: Artifact) -> list[CandidatePoint]:
    """One row for each file that was timed: what `plots.candidates` draws."""
    candidates: list[ShownCandidate] = artifact.metrics["candidates"]
    return [
        {**timed, "name": row["name"], "builder": row["builder"], "macs": row["macs"], "kept": row["kept"]}
        for row in candidates
        for timed in row["timed"]
    ]


def latency_limit_ms(artifact: Artifact) -> float | None:
    """What the candidates were compared with; None: nothing, or not one number for all of them."""
    shortlist = artifact.metrics["shortlist"]
    return shortlist["latency_p50_ms"] if shortlist and "limits" not in shortlist else None


def _title(shortlist: ShortlistRow) -> str:
    limits = [f"p50 {shortlist['latency_p50_ms']:g} ms"] if shortlist["latency_p50_ms"] else []
    limits += [f"{shortlist['size_bytes']:,} bytes"] if shortlist["size_bytes"] else []
    limits = shortlist.get("limits", limits)
    text = "p50 of one call untrained, ms, by target; bytes of the smallest file; budget: "
    text += ", ".join(limits) or "none on latency or size"
    if shortlist["no_student_for"]:
        text += f"; no student for {', '.join(shortlist['no_student_for'])}: the one that is kept has no file for it"
    if shortlist["replayed"] and shortlist["measured"] != shortlist["today"]:
        text += (
            f"; a recorded choice is followed, today's would train {', '.join(shortlist['today']['trained']) or 'none'}"
        )
    return text
