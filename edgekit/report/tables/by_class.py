"""Tables of what the accuracy of what ships hides, class by class."""

from __future__ import annotations

import numpy as np

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.by_class import ByClass, GroupRow
from edgekit.report.formatting import Table, count, percent

LOST = "evidence/lost.npz"
LETTERS = 40
"""Of a class's name in a table."""


def by_class(artifact: Artifact) -> Table:
    """Each class, label, kind or range of values: its score by the baseline and by each variant that ships."""
    found = artifact.metrics["by_class"]
    rows = [[_short(row["name"]), count(row["samples"]), *scores(row, found)] for row in found["groups"]]
    return Table((found["group"], "samples", *found["variants"]), rows, said_of(found))


def scores(row: GroupRow, found: ByClass) -> list[str]:
    """A cell for each variant: its score, and how many samples more or fewer than the baseline it finds."""
    before = row["answers"][0]["found"]
    cells = []
    for one in row["answers"]:
        score = _score(one["score"], found)
        change = 0 if one["found"] is None or before is None else one["found"] - before
        cells.append(f"{score}\u00a0({change:+d})" if change else score)
    return cells


def said_of(found: ByClass) -> str:
    """What the table's cells are, on which split, and how many rows are left out."""
    more = found["groups_in_all"] - len(found["groups"])
    counted = any(one["found"] is not None for row in found["groups"] for one in row["answers"])
    text = f"{found['score']} on {found['split']}, {found['samples']:,} samples"
    text += "; in brackets samples found more or fewer than by the baseline" if counted else ""
    return f"{text}; the {len(found['groups'])} that lose most, {more:,} more are not shown" if more else text


def lost_in_words(artifact: Artifact) -> str:
    """How many samples were lost and gained by each variant that ships, and when one counts as right."""
    found, lost = artifact.metrics["by_class"], artifact.metrics["lost"]
    counts = [
        f"{name} loses {found['lost'][name]:,} and gains {found['gained'][name]:,} of {found['samples']:,}"
        for name in found["variants"][1:]
    ]
    shown = len(lost["samples"])
    some = f"; {'all' if shown == lost['in_all'] else shown} lost by {lost['variant']} are shown" if shown else ""
    return f"{'; '.join(counts) or 'no variant to compare'}{some}. A sample is right where {lost['right_means']}."


def lost_samples(artifact: Artifact) -> np.ndarray:
    """The raw samples, texts in words, that go with `metrics["lost"]["samples"]`, in that order."""
    with np.load(artifact.file(LOST), allow_pickle=False) as kept:
        return np.asarray(kept["x"])


def _score(score: float | None, found: ByClass) -> str:
    if score is None:
        return "–"
    return f"{score:.3g}" if found["groups"][0]["answers"][0]["found"] is None else percent(score)


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
