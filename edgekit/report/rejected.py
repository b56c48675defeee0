"""Every step of a run that was measured and not kept, with its figures and the reason, from sealed artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.pruning import PruneStep
from edgekit.core.schema.quantization import RecipeRow
from edgekit.core.schema.training import ShownCandidate, StudentRow
from edgekit.core.schema.variants import RejectedStep, RejectingStage
from edgekit.core.tasks.accuracy_drop import drop_of_counts
from edgekit.report.formatting import faster, milliseconds, percent, points, span
from edgekit.report.tables import Column

Bounds = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Of a training's row its drop below the baseline and the bound of it."""
COLUMNS: tuple[Column[RejectedStep], ...] = (
    Column("stage", lambda row: row["stage"], numeric=False),
    Column("not kept", lambda row: row["what"], numeric=False, breaks=True),
    Column("validation", lambda row: percent(row["accuracy_validation"])),
    Column("drop, pp", lambda row: points(row["drop_pp"])),
    Column("at most", lambda row: points(row["bound_pp"])),
    Column("why", lambda row: row["reason"], numeric=False, breaks=True),
)
"""Of the table, whoever shows it."""


def steps(benchmark: Artifact) -> list[RejectedStep]:
    """What distilling, pruning, quantizing, converting and measuring gave up, in the order of the pipeline.

    Each row: `stage`, `what`, `accuracy_validation`, `drop_pp` below the baseline and its `bound_pp`, and `reason`. The
    figures are None for a network that was not trained, and for what could not be made or measured.
    """
    bounds = partial(_drop, benchmark.config["task"], benchmark.config["budget"]["accuracy_confidence"])
    trained: list[RejectedStep] = []
    if benchmark.find_ancestor("distill"):
        trained = [
            *_candidates(benchmark.ancestor("distill").metrics, bounds),
            *_students(benchmark.ancestor("distill").metrics, bounds),
            *_pruned(benchmark.ancestor("prune").metrics),
            *quantized(benchmark.ancestor("quantize").metrics),
        ]
    return [
        *trained,
        *_left_out(benchmark.ancestor("convert").metrics),
        *_variants(benchmark.metrics),
        *_slower(benchmark.metrics),
    ]


def _drop(task: str, confidence: float, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its bound, where answers are right or wrong; of other tasks distill keeps none."""
    if not row["samples"]:
        return {"drop_pp": None, "bound_pp": None}
    if task == "classification":
        return asdict(drop_of_counts(row["lost"], row["gained"], row["samples"], confidence))
    return {"drop_pp": row["drop_pp"], "bound_pp": None}


def _candidates(found: Mapping[str, Any], bounds: Bounds) -> Iterator[RejectedStep]:
    """Networks that might have been the student; one that was not trained has no accuracy."""
    tried: list[ShownCandidate] = found["candidates"]
    for each in tried:
        if not each["kept"]:
            best, lost = each["best"], each["left_out"]
            if best:
                detail = f"untrained {milliseconds(best['p50_ms'])} ms at best ({best['target']} {best['precision']})"
            else:
                detail = f"{lost[0]['target']} {lost[0]['precision']}: {lost[0]['reason']}"
            what = f"candidate {each['name']}"
            yield _row("distill", what, each["validation_accuracy"], bounds(each), f"{each['reason']}; {detail}")


def _students(found: Mapping[str, Any], bounds: Bounds) -> Iterator[RejectedStep]:
    students: list[StudentRow] = found["students"]
    for student in students:
        if not student["kept"]:
            what = f"student, {'labels alone' if student['options'] is None else student['name']}"
            yield _row("distill", what, student["validation_accuracy"], bounds(student), student["reason"])


def _pruned(found: Mapping[str, Any]) -> Iterator[RejectedStep]:
    for way, key in (("structured", "structured_steps"), ("unstructured", "unstructured_steps")):
        steps: list[PruneStep] = found[key]
        if len(steps) == 1:
            yield _row("prune", found[way]["what"], None, {"drop_pp": None, "bound_pp": None}, found[way]["reason"])
        for step in steps:
            if step["step"] and not step["kept"]:
                number = f"{step['from_scratch']}, from new weights" if "from_scratch" in step else step["step"]
                what = f"{found[way]['what']}, step {number}"
                yield _row("prune", what, step["validation_accuracy"], step, step["reason"])


def quantized(found: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Recipes and layers in float that nncf could not make have no figures."""
    recipes: list[RecipeRow] = found["recipes"]
    for recipe in recipes:
        if not recipe["kept"]:
            what = f"PTQ recipe {recipe['recipe']}, in simulation"
            yield _row("quantize", what, recipe["validation_accuracy"], recipe, recipe["reason"])
    for method in ("ptq", "qat"):
        if method != found["method"] and found[f"{method}_drop"]:
            what = f"{method.upper()} int8, in simulation"
            reason = found[f"against_{method}"]
            yield _row("quantize", what, found[f"{method}_accuracy"], found[f"{method}_drop"], reason)
    for step in found["mixed"]:
        if not step["kept"]:
            what = f"int8 with {', '.join(step['keep_float'])} in float, in simulation"
            yield _row("quantize", what, step["validation_accuracy"], step, step["reason"])


def _left_out(found: Mapping[str, Any]) -> Iterator[RejectedStep]:
    nothing = {"drop_pp": None, "bound_pp": None}
    for variant in found["left_out"]:
        yield _row("convert", variant["name"], None, nothing, variant["reason"])


def _variants(found: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Those outside the budget; those inside that another beat stand in the decisions, with their intervals."""
    for row in found["rows"][1:]:
        if not row["inside_budget"]:
            yield _row("benchmark", row["name"], row["accuracy_validation"], row, "; ".join(row["reasons"]))


def _slower(found: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Steps of the waterfall that lead away from the winner though they are inside the budget."""
    rows = {row["name"]: row for row in found["rows"]}
    before = ""
    for step in found["waterfall"]:
        row = rows[step["variant"]]
        if step["kept"]:
            before = step["variant"]
        elif row["inside_budget"]:
            low, high = step["gain_low"], step["gain_high"]
            reason = f"{faster(step['gain'], low, high)} against {before} ({span(low, high)})"
            if low > 1:
                reason += f", but {found['verdict']['winner']} wins: see the decisions"
            yield _row("benchmark", f"{step['step']}: {row['name']}", row["accuracy_validation"], row, reason)


def _row(
    stage: RejectingStage, what: str, accuracy: float | None, drop: Mapping[str, Any], reason: str
) -> RejectedStep:
    return {
        "stage": stage,
        "what": what,
        "accuracy_validation": accuracy,
        "drop_pp": drop["drop_pp"],
        "bound_pp": drop["bound_pp"],
        "reason": reason,
    }
