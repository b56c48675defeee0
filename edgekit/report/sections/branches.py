"""Show which outputs of a detector lost its accuracy in int8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.branches import BranchLosses, ReplacedBranch
from edgekit.core.schema.result import Result
from edgekit.report.formatting import percent
from edgekit.report.tables import Grid, Table, grid

COLUMNS = ("variant", "outputs from its float file", "accuracy")


def sentences(losses: Sequence[BranchLosses]) -> Iterator[str]:
    """Yield a sentence for each detector: what it lost, and by which outputs."""
    for each in losses:
        reached = {row["branch"]: percent(row["accuracy"]) for row in each["replaced"] if row["stride_pixels"] is None}
        cause = f"its {each['lost_by']}" if each["lost_by"] != "both" else "its boxes and its scores"
        yield (
            f"{each['name']} falls from {percent(each['reference_accuracy'])} in float to {percent(each['accuracy'])} "
            f"by {cause}{_worst_grid(each)}: with the boxes of {each['reference']} it has {reached['boxes']}, with the "
            f"scores {reached['scores']}."
        )


def table(artifact: Artifact) -> Table | None:
    """Return the accuracy with each kind of output from the float file; None if no detector lost too much."""
    losses = artifact.metrics.get("branches", [])
    return Table(COLUMNS, _rows(losses), " ".join(sentences(losses))) if losses else None


def page_grid(result: Result) -> Grid | None:
    """Return the same for the page."""
    losses = result.get("branches", [])
    return grid(" ".join(sentences(losses)), COLUMNS, _rows(losses), COLUMNS[-1]) if losses else None


def _rows(losses: Sequence[BranchLosses]) -> list[list[str]]:
    rows = []
    for each in losses:
        rows.append([each["name"], "none", percent(each["accuracy"])])
        rows += [["", _what(row), percent(row["accuracy"])] for row in each["replaced"]]
        rows.append(["", f"all: {each['reference']}", percent(each["reference_accuracy"])])
    return rows


def _what(row: ReplacedBranch) -> str:
    grid_words = f" of the grid of {row['stride_pixels']} pixels" if row["stride_pixels"] else ""
    return f"{row['branch']}{grid_words}"


def _worst_grid(losses: BranchLosses) -> str:
    """Name the grid that accounts for more than half of what the outputs lost; empty if there is none."""
    whole = {row["branch"]: row["accuracy"] for row in losses["replaced"] if row["stride_pixels"] is None}
    if losses["lost_by"] == "both":
        return ""
    recovered = whole[losses["lost_by"]] - losses["accuracy"]
    for row in losses["replaced"]:
        is_part = row["branch"] == losses["lost_by"] and row["stride_pixels"] is not None
        if is_part and row["accuracy"] - losses["accuracy"] > recovered / 2:
            return f", most on the grid of {row['stride_pixels']} pixels"
    return ""
