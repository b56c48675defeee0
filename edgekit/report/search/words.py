"""Describe a study in sentences, for the page, the notebook and the terminal, and add up the work of each fidelity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.core.config import STAGES, TARGETS, Budget
from edgekit.core.progress_state import duration
from edgekit.core.schema.study import TrialRow
from edgekit.report.formatting import count
from edgekit.report.search.studies import FIDELITIES, Study

FIDELITY_NAMES = {
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
CONSTRAINT_WORDS = {
    "accuracy_drop_pp": ("drop of accuracy", " pp"),
    "latency_p50_ms": ("p50", " ms"),
    "latency_p50": ("p50", " of the reference's"),
    "size_bytes": ("size", " bytes"),
}


@dataclass(frozen=True)
class FidelityWork:
    """A fidelity, and the number of trials that reached it (`came`).

    `ended` counts the trials that ended at this fidelity without being complete, by state. `seconds` is the work of all
    trials that went no further than this fidelity, complete or not.
    """

    name: str
    came: int
    ended: dict[str, int]
    seconds: float

    @property
    def title(self) -> str:
        """The name of the fidelity."""
        return FIDELITY_NAMES.get(self.name, self.name)


def work_by_fidelity(study: Study) -> list[FidelityWork]:
    """Return the work of each fidelity, from cheap to expensive. A trial that repeats another one took no work."""
    trials = [each for each in study.trials if each["same_as"] is None]
    rows = []
    for place, fidelity in enumerate(FIDELITIES):
        reached = sum(FIDELITIES.index(each["rung"]) >= place for each in trials)
        ended_here = [each for each in trials if each["rung"] == fidelity]
        ended: Counter[str] = Counter(each["state"] for each in ended_here if each["state"] != "complete")
        rows.append(
            FidelityWork(
                fidelity, reached, dict(ended), float(sum(sum(each["took_s"].values()) for each in ended_here))
            )
        )
    return rows


def work_by_part(study: Study) -> dict[str, float]:
    """Return the seconds of work by part of the search. Fidelities and stages come first, in their order."""
    seconds: Counter[str] = Counter()
    for each in study.trials:
        seconds.update(each["took_s"])
    order = [*FIDELITIES, *STAGES]
    names = sorted(seconds, key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: float(seconds[name]) for name in names}


def headline(study: Study) -> str:
    """Return the result in a few words, for example `A front of 7 trials inside the budget`."""
    if study.front:
        return f"A front of {len(study.front)} trial{'s' if len(study.front) > 1 else ''} inside the budget"
    return "No trial is inside the budget"


def trials(study: Study) -> str:
    """Return the number of trials, and their outcomes."""
    states = "; ".join(f"{many} {STATES[state]}" for state, many in study.counts.items())
    inside = f", {len(study.inside)} of these inside the budget" if study.complete else ""
    batches = len(study.row["batches"])
    amount = f"{count(len(study.trials))} trial{'s' if len(study.trials) != 1 else ''}"
    states = states.replace(STATES["complete"], f"{STATES['complete']}{inside}")
    return f"{amount} in {batches} batch{'es' if batches != 1 else ''}: {states}."


def proposed(study: Study) -> str:
    """Return which sampler proposed the trials, and why."""
    sampler = study.row["sampler"]
    return f"Proposed by {sampler['name']}: {sampler['reason']}."


def ended(study: Study) -> str:
    """Return the reason why the search ended. The result is empty while it is running."""
    reason = study.row["ended"]
    return f"Ended: {ENDS.get(reason, reason)}." if reason else ""


def budget(study: Study) -> str:
    """Return the limits of the budget."""
    limits_row = study.row["budget"]
    drop = limits_row.get("accuracy_drop_pp")
    limits = [] if drop is None else [f"a drop of at most {drop:g} pp"]
    limits += Budget.model_validate(limits_row).describe_limits(targets(study), "a p50 of at most {}", "at most {}")
    return f"The budget: {', '.join(limits)}." if limits else "No budget limits the search."


def targets(study: Study) -> list[str]:
    """Return the targets whose files represent a trial: those of the objectives or, if they name none, all targets."""
    return list(dict.fromkeys(each.target for each in study.objectives if each.target)) or list(TARGETS)


def cost(study: Study) -> str:
    """Return the time that the search took, and the work of all processes."""
    took = study.row["batches"][-1]["seconds"] if study.row["batches"] else 0.0
    work = sum(row.seconds for row in work_by_fidelity(study))
    return f"The search took {duration(took)} of wall-clock time and {duration(work)} of work in all processes."


def spared(study: Study) -> str:
    """Return how many trials ended before the most expensive fidelity. The result is empty if none did."""
    rows = {row.name: row for row in work_by_fidelity(study)}
    every, last = rows["shape"].came or 0, rows["all"].came or 0
    return f"{every - last} of {every} trials ended before the most expensive step." if last < every else ""


def disturbed(study: Study) -> str:
    """Return a sentence that names the batches with noisy latencies, numbered from 1.

    The result is empty if there is no such batch.
    """
    batches = [str(each["number"] + 1) for each in study.row["batches"] if each["disturbed"]]
    if not batches:
        return ""
    which = f"batch {batches[0]}" if len(batches) == 1 else f"batches {', '.join(batches)}"
    return f"The latencies of {which} are noisy: they are less certain than their intervals say."


def nearest(study: Study) -> str:
    """If no trial meets the budget, return a sentence about the complete trial that exceeds it least.

    Otherwise the result is empty.
    """
    if study.front:
        return ""
    if not study.complete:
        return "No trial was measured in full: widen the space, or the budget."
    limits = study.row["budget"]
    best = min(study.complete, key=lambda each: _worst_excess(each, limits))
    return f"Trial {best['number']} comes nearest, but it is over the budget: {excess_text(best)}."


def excess_text(trial: TrialRow) -> str:
    """Return every limit that a trial exceeds, and by how much, such as `drop of accuracy by 1.21 pp`."""
    texts = []
    for name, excess in trial["constraints"].items():
        what, unit = CONSTRAINT_WORDS.get(name, (name, ""))
        texts += [f"{what} by {_figure(excess)}{unit}"] if excess > 0 else []
    return ", ".join(texts)


def _worst_excess(trial: TrialRow, limits: Mapping[str, object]) -> float:
    """Return the largest excess, as a share of the limit if the limit is known."""
    shares = []
    for name, by in trial["constraints"].items():
        recorded_limit = limits.get(name)
        limit = recorded_limit if isinstance(recorded_limit, (int, float)) else _relative_limit(name, limits)
        shares.append(by / limit if limit and limit > 0 else by)
    return max(shares, default=0.0)


def _relative_limit(name: str, limits: Mapping[str, object]) -> float | None:
    """Return, as a number, a limit that is relative to a reference model.

    It is a ratio for the latency, and bytes for the size if the size of the reference model is known.
    """
    whole = Budget.model_validate(limits).limits("")
    if name == "latency_p50":
        return whole.latency_p50.ratio if whole.latency_p50 else None
    return whole.max_bytes() if name == "size_bytes" else None


def _figure(by: float) -> str:
    return f"{by:,.0f}" if by >= 1000 else f"{by:.3g}"
