"""The checks of the notebooks. Each prints its result, or raises an error with the value, the limit and advice."""

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
    """Check that `value` ≥ `limit`. Raises `StageError`, with `fix` as the advice, if it is not."""
    _require(
        value >= limit,
        f"{what}: {value:.4g} ≥ {limit:.4g}",
        f"{what}: got {value:.4g}, expected at least {limit:.4g}; {fix}",
    )


def at_most(what: str, value: float, limit: float, fix: str) -> None:
    """Check that `value` ≤ `limit`. Raises `StageError`, with `fix` as the advice, if it is not."""
    _require(
        value <= limit,
        f"{what}: {value:.4g} ≤ {limit:.4g}",
        f"{what}: got {value:.4g}, expected at most {limit:.4g}; {fix}",
    )


def quietly_at_least(what: str, value: float, limit: float, fix: str) -> None:
    """Like `at_least`, but print nothing if the check passes. For checks of many rows."""
    if not value >= limit:
        at_least(what, value, limit, fix)


def holds(what: str, condition: bool, fix: str) -> None:
    """Check the condition that `what` describes. Raises `StageError`, with `fix` as the advice, if it is False."""
    _require(condition, what, f"does not hold: {what}; {fix}")


def files_match(artifact: Artifact) -> None:
    """Check that no file of the artifact has changed since it was sealed. Raises `TrustError` otherwise."""
    verify(artifact)
    print(f"✓ {artifact.stage}: {len(artifact.files)} files match their sha256")


def budget_met(benchmark: Artifact) -> None:
    """Check that at least one variant meets the budget. Raises `BudgetMissed` with the nearest miss otherwise."""
    metrics = benchmark.metrics
    verdict = metrics["verdict"]
    if not verdict["met"]:
        raise BudgetMissed(missed_message(metrics["nearest_miss"], metrics["budget"]))
    print(
        f"✓ budget met by {verdict['winner']}: {verdict['drop_validation_pp']:+.2f} pp drop on validation, "
        f"at most {verdict['bound_validation_pp']:+.2f} pp at {100 * verdict['confidence']:g} % confidence"
    )
    convert = benchmark.find_ancestor("convert")
    left_out = convert.metrics.get("targets_left_out", {}) if convert else {}
    for target, nearest in metrics["unmet"].items():
        print(f"✗ {target}: {left_out.get(target) or missed_message(nearest, metrics['budget'])}")


def budget_possible(budget: Budget, samples: int, task: str = "classification") -> None:
    """Print whether this many validation samples can show that the budget is met.

    If there are too few samples, only a note is printed and no error is raised: a network that is more accurate than
    the baseline can still meet the budget.
    """
    task_class = tasks.load_task(task)
    if not task_class.AT_MOST_ONE:
        print(f"✓ {task_class.METRIC} of {samples} validation samples: the bootstrap bounds the drop of each network")
    elif accuracy_drop.can_meet(samples, budget.accuracy_confidence, budget.accuracy_drop_pp):
        confidence = f"{100 * budget.accuracy_confidence:g} % confidence"
        print(
            f"✓ {samples} validation samples can show a drop of {budget.accuracy_drop_pp:g} pp or less at {confidence}"
        )
    else:
        print(
            f"✗ budget of {budget.accuracy_drop_pp:g} pp: "
            f"{accuracy_drop.too_few_samples(samples, budget.accuracy_confidence)}"
        )


def validation_unseen(benchmark: Artifact) -> None:
    """Print whether models that were trained outside this run seem to have seen validation samples in training.

    This raises no error, because only the owners of these models can know for certain.
    """
    for row in leakage_rows(benchmark.metrics):
        print(f"{'✗' if row['known'] else '✓'} {leakage_message(row)}")


def leakage_rows(source: Mapping[str, Any]) -> list[SeenValidation]:
    """Return the rows about models that may have seen validation samples in training.

    `source` is a result or the metrics of the benchmark stage. The baseline comes first, then the teacher and the
    reference models.
    """
    baseline = source["seen_validation"]
    return [*([baseline] if baseline else []), *(source.get("others_seen_validation") or [])]


def decisions_follow(benchmark: Artifact) -> None:
    """Check that every winner follows from its evidence: of the variants in the tie, it has the smallest file.

    A decision that this run replays from an earlier record is printed, but not checked.

    Raises
    ------
    StageError
        A winner does not follow from its evidence.
    """
    for decision in benchmark.metrics["decisions"]:
        name, chosen = decision["decision"], decision["chosen"]
        if decision["replayed"] and "where" in decision:
            print(f"✓ {name}: {chosen}, as recorded on {decision['host'] or 'no device'} ({decision['where']})")
        elif decision["replayed"]:
            differs = decision["today"] != chosen
            note = f"; today's measurement would decide {decision['today']}" if differs else ""
            print(f"{'✗' if differs else '✓'} {name}: {chosen}, as recorded{note}")
        elif decision["candidates"] and "in_the_tie" in decision["candidates"][0]:
            tie = [(row["bytes"], row["name"]) for row in decision["candidates"] if row["in_the_tie"]]
            summary = f"{name}: {chosen}, {decision['rule']}" + (f" of {len(tie)}" if len(tie) > 1 else "")
            holds(summary, chosen == min(tie)[1], "please report this: it is a fault of edgekit")


NONE_MET = "no variant meets the budget; "


def missed_message(nearest: NearestMiss | None, budget: BudgetLimits) -> str:
    """Return the message about a missed budget: the nearest variant, and by how much it missed."""
    if nearest is None:
        return f"{NONE_MET}there was no variant to measure: check convert.models and targets"
    excesses = _excesses(nearest, budget)
    device = nearest.get("device")
    latency = f"p50 {nearest['p50_ms']:.4g} ms{' on this machine' if device else ''}"
    if device and device["p50_ms"] is not None:
        latency = f"p50 {device['p50_ms']:.4g} ms on {device['host']} ({device['where']})"
    return (
        f"{NONE_MET}the nearest miss is {nearest['name']} "
        f"({latency}, {nearest['bytes']:,} bytes)"
        f"{', over by ' + ' and '.join(excesses) if excesses else ''}: {'; '.join(nearest['reasons'])}. "
        "Widen the budget, prune less, or give the student more epochs"
    )


def _excesses(nearest: NearestMiss, budget: BudgetLimits) -> list[str]:
    """Return the amount by which the variant exceeds each of the limits that it breaks."""
    own_limits = nearest.get("limits")
    limit_ms, limit_bytes = (own_limits or budget)["latency_p50_ms"], (own_limits or budget)["size_bytes"]
    excesses = []
    if (points := nearest["bound_pp"] - budget["accuracy_drop_pp"]) > 0:
        excesses.append(f"{points:.2g} pp of accuracy")
    device = nearest.get("device")
    p50_ms = device["p50_ms"] if device else nearest["p50_ms"]
    if limit_ms and p50_ms is not None and p50_ms > limit_ms:
        excesses.append(f"{p50_ms - limit_ms:.3g} ms ({p50_ms / limit_ms - 1:.0%}) of p50")
    relative = own_limits.get("beside") if own_limits else None
    if relative and relative["ratio"] > relative["limit"]:
        excesses.append(
            f"{relative['ratio'] / relative['limit'] - 1:.0%} of p50, which is {relative['ratio']:.3g} "
            f"({relative['ratio_low']:.3g} to {relative['ratio_high']:.3g}) times that of {relative['name']}"
        )
    if limit_bytes and nearest["bytes"] > limit_bytes:
        excesses.append(f"{nearest['bytes'] - limit_bytes:,} bytes ({nearest['bytes'] / limit_bytes - 1:.0%})")
    return excesses


ADVICE_IF_SEEN = {
    "baseline": "If so, the drops in accuracy look larger on validation than they are. Because the budget limits "
    "these drops, good variants may be rejected: set data.validation_from to test, or give validation samples "
    "that the model has not seen",
    "teacher": "It was chosen for an accuracy that it does not have: set data.validation_from to test, or name another "
    "teacher",
    "rival": "It was most likely trained on the samples that validation is taken from, so use its accuracy on test "
    "alone",
}
"""What to do about a model that has seen validation samples in training, by its role in the run."""


def leakage_message(row: SeenValidation) -> str:
    """Return the message about a model trained elsewhere, from its row of `stages/benchmark/leakage.py`."""
    rates = (
        f"accuracy {row['accuracy_validation']:.2%} on {row['samples_validation']} validation samples and "
        f"{row['accuracy_test']:.2%} on {row['samples_test']} test samples"
    )
    test = f"Fisher's exact test, p = {row['p_value']:.2g}, level {100 * row['level']:g} %"
    if not row["known"]:
        return f"{row['name']}: {rates}; no evidence that it was trained on validation samples ({test})"
    role = row.get("role", "baseline")
    called = row["name"] if role == "baseline" else f"the {role} {row['name']}"
    return (
        f"{called} has probably seen validation samples: {rates}, a larger gap than chance can explain ({test}). "
        f"{ADVICE_IF_SEEN[role]}"
    )


def short_leakage_message(row: SeenValidation) -> str:
    """Return the message for the end of a run about a model that has seen validation samples in training.

    Unlike `leakage_message`, it does not mention the statistical test.
    """
    role = row.get("role", "baseline")
    name = row["name"] if role == "baseline" else f"The {role} {row['name']}"
    return (
        f"{name} was probably trained on validation samples: its accuracy is {row['accuracy_validation']:.2%} there, "
        f"and {row['accuracy_test']:.2%} on the test samples. {ADVICE_IF_SEEN[role]}."
    )


def _require(condition: bool, passed: str, failed: str) -> None:
    if not condition:
        raise StageError(failed)
    print(f"✓ {passed}")
