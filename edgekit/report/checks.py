"""Gates: a notebook's checks. Each prints what it found, or raises with the value, the limit and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact, verify
from edgekit.core.config import Budget
from edgekit.core.errors import BudgetMissed, StageError
from edgekit.core.schema.limits import BudgetLimits
from edgekit.core.schema.variants import NearestMiss, SeenValidation
from edgekit.core.tasks import accuracy_drop


def at_least(what: str, value: float, limit: float, fix: str) -> None:
    """`value` ≥ `limit`, else StageError."""
    _check(
        value >= limit,
        f"{what}: {value:.4g} ≥ {limit:.4g}",
        f"{what}: got {value:.4g}, expected at least {limit:.4g}; {fix}",
    )


def at_most(what: str, value: float, limit: float, fix: str) -> None:
    """`value` ≤ `limit`, else StageError."""
    _check(
        value <= limit,
        f"{what}: {value:.4g} ≤ {limit:.4g}",
        f"{what}: got {value:.4g}, expected at most {limit:.4g}; {fix}",
    )


def quietly_at_least(what: str, value: float, limit: float, fix: str) -> None:
    """As `at_least`, but prints nothing where all is well: for checks over many rows."""
    if not value >= limit:
        at_least(what, value, limit, fix)


def holds(what: str, condition: bool, fix: str) -> None:
    """A plain fact, else StageError."""
    _check(condition, what, f"does not hold: {what}; {fix}")


def files_match(artifact: Artifact) -> None:
    """Every file of the artifact is as it was sealed, else TrustError."""
    verify(artifact)
    print(f"✓ {artifact.stage}: {len(artifact.files)} files match their sha256")


def budget_met(benchmark: Artifact) -> None:
    """At least one variant is inside the budget, else BudgetMissed with the nearest miss."""
    metrics = benchmark.metrics
    verdict = metrics["verdict"]
    if not verdict["met"]:
        raise BudgetMissed(missed_message(metrics["nearest_miss"], metrics["budget"]))
    print(
        f"✓ budget met by {verdict['winner']}: {verdict['drop_validation_pp']:+.2f} pp drop on validation, "
        f"at most {verdict['bound_validation_pp']:+.2f} pp at {100 * verdict['confidence']:g} % confidence"
    )
    convert = benchmark.find_ancestor("convert")
    lost = convert.metrics.get("targets_left_out", {}) if convert else {}
    for target, nearest in metrics["unmet"].items():
        print(f"✗ {target}: {lost.get(target) or missed_message(nearest, metrics['budget'])}")


def budget_possible(budget: Budget, samples: int, task: str = "classification") -> None:
    """Say whether `samples` validation samples can show the budget met; a note, for a network may also gain."""
    kind = tasks.load_task(task)
    if not kind.AT_MOST_ONE:
        print(f"✓ {kind.METRIC} of {samples} validation samples: the bootstrap bounds the drop of each network")
    elif accuracy_drop.can_meet(samples, budget.accuracy_confidence, budget.accuracy_drop_pp):
        sure = f"{100 * budget.accuracy_confidence:g} % confidence"
        print(f"✓ {samples} validation samples can show a drop of {budget.accuracy_drop_pp:g} pp or less at {sure}")
    else:
        print(
            f"✗ budget of {budget.accuracy_drop_pp:g} pp: "
            f"{accuracy_drop.too_few_samples(samples, budget.accuracy_confidence)}"
        )


def validation_unseen(benchmark: Artifact) -> None:
    """Print whether models trained elsewhere seem to know validation; no error, because only their owners know."""
    for found in tested_for_validation(benchmark.metrics):
        print(f"{'✗' if found['known'] else '✓'} {seen_message(found)}")


def tested_for_validation(source: Mapping[str, Any]) -> list[SeenValidation]:
    """The rows of a result, or of the benchmark's metrics: the baseline, the teacher, then the rivals."""
    baseline = source["seen_validation"]
    return [*([baseline] if baseline else []), *(source.get("others_seen_validation") or [])]


def decisions_follow(benchmark: Artifact) -> None:
    """Every winner follows from its own evidence by the rule, else StageError; a replayed decision is only printed."""
    for decision in benchmark.metrics["decisions"]:
        what, chosen = decision["decision"], decision["chosen"]
        if decision["replayed"] and "where" in decision:
            print(f"✓ {what}: {chosen}, as recorded on {decision['host'] or 'no device'} ({decision['where']})")
        elif decision["replayed"]:
            differs = decision["today"] != chosen
            today = f"; today's measurement would decide {decision['today']}" if differs else ""
            print(f"{'✗' if differs else '✓'} {what}: {chosen}, as recorded{today}")
        elif decision["candidates"] and "in_the_tie" in decision["candidates"][0]:
            tie = [(row["bytes"], row["name"]) for row in decision["candidates"] if row["in_the_tie"]]
            summary = f"{what}: {chosen}, {decision['rule']}" + (f" of {len(tie)}" if len(tie) > 1 else "")
            holds(summary, chosen == min(tie)[1], "please report this: it is a fault of edgekit")


NONE_MET = "no variant meets the budget; "


def missed_message(nearest: NearestMiss | None, budget: BudgetLimits) -> str:
    """The message of a missed budget: the nearest variant, and by how much it missed."""
    if nearest is None:
        return f"{NONE_MET}there was none to measure: check convert.models and targets"
    over = _over(nearest, budget)
    there = nearest.get("device")
    latency = f"p50 {nearest['p50_ms']:.4g} ms{' on this machine' if there else ''}"
    if there and there["p50_ms"] is not None:
        latency = f"p50 {there['p50_ms']:.4g} ms on {there['host']} ({there['where']})"
    return (
        f"{NONE_MET}the nearest miss is {nearest['name']} "
        f"({latency}, {nearest['bytes']:,} bytes)"
        f"{', over by ' + ' and '.join(over) if over else ''}: {'; '.join(nearest['reasons'])}. "
        "Widen the budget, prune less, or give the student more epochs"
    )


def _over(nearest: NearestMiss, budget: BudgetLimits) -> list[str]:
    """By how much it exceeds each limit that it exceeds."""
    held = nearest.get("limits")
    limit_ms, limit_bytes = (held or budget)["latency_p50_ms"], (held or budget)["size_bytes"]
    over = []
    if (points := nearest["bound_pp"] - budget["accuracy_drop_pp"]) > 0:
        over.append(f"{points:.2g} pp of accuracy")
    there = nearest.get("device")
    p50_ms = there["p50_ms"] if there else nearest["p50_ms"]
    if limit_ms and p50_ms is not None and p50_ms > limit_ms:
        over.append(f"{p50_ms - limit_ms:.3g} ms ({p50_ms / limit_ms - 1:.0%}) of p50")
    beside = held.get("beside") if held else None
    if beside and beside["ratio"] > beside["limit"]:
        over.append(
            f"{beside['ratio'] / beside['limit'] - 1:.0%} of p50, which is {beside['ratio']:.3g} "
            f"({beside['ratio_low']:.3g} to {beside['ratio_high']:.3g}) times that of {beside['name']}"
        )
    if limit_bytes and nearest["bytes"] > limit_bytes:
        over.append(f"{nearest['bytes'] - limit_bytes:,} bytes ({nearest['bytes'] / limit_bytes - 1:.0%})")
    return over


IF_SEEN = {
    "baseline": "Because it was trained on validation samples, every drop on validation looks larger than it is: "
    "set data.validation_from to test, or give validation samples that it has not seen",
    "teacher": "It was chosen for an accuracy that it does not have: set data.validation_from to test, or name another "
    "teacher",
    "rival": "It was most likely trained on the samples that validation is taken from, so use its accuracy on test "
    "alone",
}
"""What follows from it, by what the model is in the run."""


def seen_message(found: SeenValidation) -> str:
    """The message about a model trained elsewhere, from its row of `stages/benchmark/leakage.py`."""
    rates = (
        f"{found['accuracy_validation']:.2%} right of {found['samples_validation']} validation samples and "
        f"{found['accuracy_test']:.2%} of {found['samples_test']} of test"
    )
    test = f"Fisher's exact test, p = {found['p_value']:.2g}, level {100 * found['level']:g} %"
    if not found["known"]:
        return f"{found['name']}: {rates}; no evidence that it was trained on validation samples ({test})"
    role = found.get("role", "baseline")
    called = found["name"] if role == "baseline" else f"the {role} {found['name']}"
    return f"{called} seems to know validation: {rates}, more than chance can explain ({test}). {IF_SEEN[role]}"


def short_seen_message(seen: SeenValidation) -> str:
    """The same of a model that knows validation, without the test: for the end of a run."""
    role = seen.get("role", "baseline")
    name = seen["name"] if role == "baseline" else f"The {role} {seen['name']}"
    return (
        f"{name} was probably trained on validation samples: {seen['accuracy_validation']:.2%} of them right, and "
        f"{seen['accuracy_test']:.2%} of the test samples. {IF_SEEN[role]}."
    )


def _check(good: bool, found: str, fault: str) -> None:
    if not good:
        raise StageError(fault)
    print(f"✓ {found}")
