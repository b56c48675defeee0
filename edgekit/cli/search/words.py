"""What a search says on stdout: a line for each batch, and where the study lies at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edgekit.core.schema.study import StudyRow
from edgekit.report.search.words import STATES


def batch(row: StudyRow) -> Iterator[str]:
    """The last batch: how its trials ended, and the front."""
    last = row["batches"][-1]
    trials = [trial for trial in row["trials"] if trial["batch"] == last["number"]]
    found = Counter(trial["state"] for trial in trials)
    ended = ", ".join(f"{number} {STATES[state]}" for state, number in found.items())
    points = f"{len(row['front'])} {'point' if len(row['front']) == 1 else 'points'} on the front"
    yield f"batch {last['number'] + 1}: {ended}; {points}; digest {last['digest'][:16]}"
    for trial in trials:
        if trial["state"] == "failed":
            yield f"  trial {trial['number']} failed: {trial['reason']}"
    if last["disturbed"]:
        yield "  its measuring was disturbed each time; the intervals tell less than they say"


def study(row: StudyRow, digest: str, folder: Path) -> str:
    """Where everything is, and the digest."""
    return f"study     {folder / 'study.json'}, {len(row['trials'])} trials, digest {digest}"
