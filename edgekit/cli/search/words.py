"""What a search says on stdout: a line for each batch, and the front at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edgekit.core.rows.study import ObjectiveRow, StudyRow, TrialRow
from edgekit.report.formatting import count, milliseconds, percent

MOST = 12
"""Points of the front that are printed; study.json has all."""
STATES = {
    "complete": "complete",
    "infeasible": "over the budget by a cheap rung",
    "stopped": "stopped after a few epochs",
    "failed": "failed",
}


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


def ended(row: StudyRow, digest: str, folder: Path) -> Iterator[str]:
    """The front, where everything is, and if no trial met the budget which one came nearest."""
    objectives, trials = row["objectives"], {trial["number"]: trial for trial in row["trials"]}
    yield f"sampler   {row['sampler']['name']}: {row['sampler']['reason']}"
    ahead = sorted((trials[number] for number in row["front"]), key=lambda trial: -(trial["values"][0] or 0.0))
    for trial in ahead[:MOST]:
        yield f"trial {trial['number']:<4}" + "  ".join(
            f"{_title(each)} {_figure(each, value)}" for each, value in zip(objectives, trial["values"], strict=True)
        )
    if len(ahead) > MOST:
        yield f"… and {len(ahead) - MOST} more"
    if not ahead:
        yield _nearest(row)
    yield f"study     {folder / 'study.json'}, {len(trials)} trials, digest {digest}"


def _nearest(row: StudyRow) -> str:
    complete = [trial for trial in row["trials"] if trial["state"] == "complete"]
    if not complete:
        reasons = Counter(trial["reason"] for trial in row["trials"])
        said = reasons.most_common(1)[0][0] if reasons else "nothing was tried"
        return f"NO TRIAL met the budget, and none came to its end; most often: {said}"
    nearest = min(complete, key=lambda trial: (_over(trial, row), trial["number"]))
    limits = ", ".join(f"{name} by {over:.3g}" for name, over in nearest["constraints"].items() if over > 0)
    return (
        f"NO TRIAL met the budget; trial {nearest['number']} came nearest, over {limits}; raise it, or widen the space"
    )


def _over(trial: TrialRow, row: StudyRow) -> float:
    """How far over its limits, as shares of them."""
    budget = row["budget"]
    return sum(
        max(over, 0.0) / max(float(budget.get(name) or 1.0), 1e-9) for name, over in trial["constraints"].items()
    )


def _title(objective: ObjectiveRow) -> str:
    return objective["name"] if objective["target"] is None else f"{objective['name']} {objective['target']}"


def _figure(objective: ObjectiveRow, value: float | None) -> str:
    if value is None:
        return "unknown"
    if objective["name"] == "accuracy":
        return percent(value)
    return milliseconds(value) if objective["name"] == "p50_ms" else count(int(value))
