"""A study in sentences, for the page, the notebook and the terminal alike, and what its rungs cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.core.config import STAGES, TARGETS, Budget
from edgekit.core.progress_state import duration
from edgekit.core.schema.study import TrialRow
from edgekit.report.formatting import count
from edgekit.report.search.studies import RUNGS, Study

RUNG_NAMES = {
    "shape": "by shape",
    "untrained": "timed untrained",
    "few_epochs": "few epochs",
    "all": "all epochs, files",
}
STATES = {
    "complete": "measured in full",
    "infeasible": "ruled out early by the budget",
    "stopped": "stopped after few epochs",
    "failed": "failed",
}
ENDS = {
    "trials": "the requested number of trials is reached",
    "minutes": "the time limit is reached",
    "every point": "every point of the space was tried",
    "interrupted": "interrupted; it can be continued",
}
OVER = {
    "accuracy_drop_pp": ("drop of accuracy", " pp"),
    "latency_p50_ms": ("p50", " ms"),
    "latency_p50": ("p50", " of the reference's"),
    "size_bytes": ("size", " bytes"),
}


@dataclass(frozen=True)
class Spent:
    """A rung: how many trials came to it, how many it ended by state, and the work of those that ended at it."""

    name: str
    came: int
    ended: dict[str, int]
    seconds: float

    @property
    def title(self) -> str:
        """In words."""
        return RUNG_NAMES.get(self.name, self.name)


def spent(study: Study) -> list[Spent]:
    """Of each rung, from cheap to dear. A trial that repeats another one cost nothing."""
    trials = [each for each in study.trials if each["same_as"] is None]
    found = []
    for place, rung in enumerate(RUNGS):
        came = sum(RUNGS.index(each["rung"]) >= place for each in trials)
        mine = [each for each in trials if each["rung"] == rung]
        ended: Counter[str] = Counter(each["state"] for each in mine if each["state"] != "complete")
        found.append(Spent(rung, came, dict(ended), float(sum(sum(each["took_s"].values()) for each in mine))))
    return found


def work_by_part(study: Study) -> dict[str, float]:
    """Seconds by what they went into: rungs and stages in their order, then what else there is."""
    seconds: Counter[str] = Counter()
    for each in study.trials:
        seconds.update(each["took_s"])
    order = [*RUNGS, *STAGES]
    names = sorted(seconds, key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: float(seconds[name]) for name in names}


def headline(study: Study) -> str:
    """`A front of 7 trials inside the budget`."""
    if study.front:
        return f"A front of {len(study.front)} trial{'s' if len(study.front) > 1 else ''} inside the budget"
    return "No trial is inside the budget"


def trials(study: Study) -> str:
    """How many there were, and what became of them."""
    states = "; ".join(f"{many} {STATES[state]}" for state, many in study.counts.items())
    inside = f", {len(study.inside)} of these inside the budget" if study.complete else ""
    batches = len(study.row["batches"])
    amount = f"{count(len(study.trials))} trial{'s' if len(study.trials) != 1 else ''}"
    states = states.replace(STATES["complete"], f"{STATES['complete']}{inside}")
    return f"{amount} in {batches} batch{'es' if batches != 1 else ''}: {states}."


def proposed(study: Study) -> str:
    """Who proposed the trials, and why."""
    sampler = study.row["sampler"]
    return f"Proposed by {sampler['name']}: {sampler['reason']}."


def ended(study: Study) -> str:
    """Why the search ended; empty of one that goes on."""
    found = study.row["ended"]
    return f"Ended: {ENDS.get(found, found)}." if found else ""


def budget(study: Study) -> str:
    """The limits that constraints come from."""
    found = study.row["budget"]
    drop = found.get("accuracy_drop_pp")
    limits = [] if drop is None else [f"a drop of at most {drop:g} pp"]
    limits += Budget.model_validate(found).describe_limits(targets(study), "a p50 of at most {}", "at most {}")
    return f"The budget: {', '.join(limits)}." if limits else "No budget limits the search."


def targets(study: Study) -> list[str]:
    """Those whose files stand for a trial: of the objectives; where these name none, all that there are."""
    return list(dict.fromkeys(each.target for each in study.objectives if each.target)) or list(TARGETS)


def cost(study: Study) -> str:
    """Wall clock, and work of all processes."""
    took = study.row["batches"][-1]["seconds"] if study.row["batches"] else 0.0
    work = sum(row.seconds for row in spent(study))
    return f"The search took {duration(took)} of wall-clock time and {duration(work)} of work in all processes."


def spared(study: Study) -> str:
    """How many trials the cheap rungs kept from the dearest; empty where none."""
    rows = {row.name: row for row in spent(study)}
    every, last = rows["shape"].came or 0, rows["all"].came or 0
    return f"{every - last} of {every} trials ended before the most expensive step." if last < every else ""


def disturbed(study: Study) -> str:
    """The batches whose latencies are noisy, counted from 1, in a sentence; empty where none is."""
    found = [str(each["number"] + 1) for each in study.row["batches"] if each["disturbed"]]
    if not found:
        return ""
    which = f"batch {found[0]}" if len(found) == 1 else f"batches {', '.join(found)}"
    return f"The latencies of {which} are noisy: they are less certain than their intervals say."


def nearest(study: Study) -> str:
    """Of a study that met no budget: the complete trial that is over it by the least; empty of any other."""
    if study.front:
        return ""
    if not study.complete:
        return "No trial was measured in full: widen the space, or the budget."
    limits = study.row["budget"]
    best = min(study.complete, key=lambda each: _over(each, limits))
    return f"Trial {best['number']} comes nearest, but it is over the budget: {over(best)}."


def over(trial: TrialRow) -> str:
    """`drop of accuracy by 1.21 pp`: every limit that a trial is over, and by how much."""
    found = []
    for name, by in trial["constraints"].items():
        what, unit = OVER.get(name, (name, ""))
        found += [f"{what} by {_figure(by)}{unit}"] if by > 0 else []
    return ", ".join(found)


def _over(trial: TrialRow, limits: Mapping[str, object]) -> float:
    """The worst excess, as a share of its limit where that is known."""
    shares = []
    for name, by in trial["constraints"].items():
        known = limits.get(name)
        limit = known if isinstance(known, (int, float)) else _relative(name, limits)
        shares.append(by / limit if limit and limit > 0 else by)
    return max(shares, default=0.0)


def _relative(name: str, limits: Mapping[str, object]) -> float | None:
    """A limit beside a reference as a number: a ratio of latencies, or bytes where they are known."""
    whole = Budget.model_validate(limits).limits("")
    if name == "latency_p50":
        return whole.latency_p50.ratio if whole.latency_p50 else None
    return whole.max_bytes() if name == "size_bytes" else None


def _figure(by: float) -> str:
    return f"{by:,.0f}" if by >= 1000 else f"{by:.3g}"
