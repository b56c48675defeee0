"""Collect the steps of a run that were measured and rejected, with figures and reasons, from the sealed artifacts."""

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
from edgekit.report.formatting import bounds_text, faster, milliseconds, percent, percentage_points
from edgekit.report.tables import Column

DropWithBound = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A function that returns the drop of a training row below the baseline, and the bound of the drop."""
COLUMNS: tuple[Column[RejectedStep], ...] = (
    Column("stage", lambda row: row["stage"], numeric=False),
    Column("rejected", lambda row: row["what"], numeric=False, breaks=True),
    Column("validation", lambda row: percent(row["accuracy_validation"])),
    Column("drop, pp", lambda row: percentage_points(row["drop_pp"])),
    Column("at most", lambda row: percentage_points(row["bound_pp"])),
    Column("why", lambda row: row["reason"], numeric=False, breaks=True),
)
"""The columns of the table of rejected steps."""


def rejected_steps(benchmark: Artifact) -> list[RejectedStep]:
    """Return the steps that distill, prune, quantize, convert and benchmark rejected, in the order of the pipeline.

    Each row has `stage`, `what`, `accuracy_validation`, `drop_pp` below the baseline with its `bound_pp`, and `reason`.
    The figures are None for networks that were not trained, and for variants that could not be converted or measured.
    """
    bounds = partial(_drop, benchmark.config["task"], benchmark.config["budget"]["accuracy_confidence"])
    trained: list[RejectedStep] = []
    if benchmark.find_ancestor("distill"):
        trained = [
            *_candidate_rows(benchmark.ancestor("distill").metrics, bounds),
            *_student_rows(benchmark.ancestor("distill").metrics, bounds),
            *_pruning_rows(benchmark.ancestor("prune").metrics),
            *quantization_rows(benchmark.ancestor("quantize").metrics),
        ]
    return [
        *trained,
        *_left_out_rows(benchmark.ancestor("convert").metrics),
        *_variant_rows(benchmark.metrics),
        *_waterfall_rows(benchmark.metrics),
    ]


def _drop(task: str, confidence: float, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the drop and, for tasks whose answers are right or wrong, its bound."""
    if not row["samples"]:
        return {"drop_pp": None, "bound_pp": None}
    if task == "classification":
        return asdict(drop_of_counts(row["lost"], row["gained"], row["samples"], confidence))
    return {"drop_pp": row["drop_pp"], "bound_pp": None}


def _candidate_rows(metrics: Mapping[str, Any], bounds: DropWithBound) -> Iterator[RejectedStep]:
    """Yield the candidates that did not become the student. Those that were not trained have no accuracy."""
    candidates: list[ShownCandidate] = metrics["candidates"]
    for candidate in candidates:
        if not candidate["kept"]:
            best, left_out = candidate["best"], candidate["left_out"]
            if best:
                detail = f"untrained {milliseconds(best['p50_ms'])} ms at best ({best['target']} {best['precision']})"
            else:
                detail = f"{left_out[0]['target']} {left_out[0]['precision']}: {left_out[0]['reason']}"
            name = f"candidate {candidate['name']}"
            yield _row(
                "distill", name, candidate["validation_accuracy"], bounds(candidate), f"{candidate['reason']}; {detail}"
            )


def _student_rows(metrics: Mapping[str, Any], bounds: DropWithBound) -> Iterator[RejectedStep]:
    students: list[StudentRow] = metrics["students"]
    for student in students:
        if not student["kept"]:
            name = f"student, {'labels alone' if student['options'] is None else student['name']}"
            yield _row("distill", name, student["validation_accuracy"], bounds(student), student["reason"])


def _pruning_rows(metrics: Mapping[str, Any]) -> Iterator[RejectedStep]:
    for kind, key in (("structured", "structured_steps"), ("unstructured", "unstructured_steps")):
        steps: list[PruneStep] = metrics[key]
        if len(steps) == 1:
            yield _row(
                "prune", metrics[kind]["what"], None, {"drop_pp": None, "bound_pp": None}, metrics[kind]["reason"]
            )
        for step in steps:
            if step["step"] and not step["kept"]:
                number = f"{step['from_scratch']}, from new weights" if "from_scratch" in step else step["step"]
                name = f"{metrics[kind]['what']}, step {number}"
                yield _row("prune", name, step["validation_accuracy"], step, step["reason"])


def quantization_rows(metrics: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Yield the rejected steps of quantization. Networks that NNCF could not quantize have no figures."""
    recipes: list[RecipeRow] = metrics["recipes"]
    for recipe in recipes:
        if not recipe["kept"]:
            name = f"PTQ recipe {recipe['recipe']}, in simulation"
            yield _row("quantize", name, recipe["validation_accuracy"], recipe, recipe["reason"])
    for method in ("ptq", "qat"):
        if method != metrics["method"] and metrics[f"{method}_drop"]:
            name = f"{method.upper()} int8, in simulation"
            reason = metrics[f"against_{method}"]
            yield _row("quantize", name, metrics[f"{method}_accuracy"], metrics[f"{method}_drop"], reason)
    for step in metrics["mixed"]:
        if not step["kept"]:
            name = f"int8 with {', '.join(step['keep_float'])} in float, in simulation"
            yield _row("quantize", name, step["validation_accuracy"], step, step["reason"])


def _left_out_rows(metrics: Mapping[str, Any]) -> Iterator[RejectedStep]:
    no_drop = {"drop_pp": None, "bound_pp": None}
    for variant in metrics["left_out"]:
        yield _row("convert", variant["name"], None, no_drop, variant["reason"])


def _variant_rows(metrics: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Yield the variants outside the budget.

    Variants inside the budget that did not win are not listed here, because the decisions show them, with intervals.
    """
    for row in metrics["rows"][1:]:
        if not row["inside_budget"]:
            yield _row("benchmark", row["name"], row["accuracy_validation"], row, "; ".join(row["reasons"]))


def _waterfall_rows(metrics: Mapping[str, Any]) -> Iterator[RejectedStep]:
    """Yield the steps of the waterfall that meet the budget but do not lead to the winner."""
    rows = {row["name"]: row for row in metrics["rows"]}
    previous = ""
    for step in metrics["waterfall"]:
        row = rows[step["variant"]]
        if step["kept"]:
            previous = step["variant"]
        elif row["inside_budget"]:
            low, high = step["gain_low"], step["gain_high"]
            reason = f"{faster(step['gain'], low, high)} against {previous} ({bounds_text(low, high)})"
            if low > 1:
                reason += f", but {metrics['verdict']['winner']} wins: see the decisions"
            yield _row("benchmark", f"{step['step']}: {row['name']}", row["accuracy_validation"], row, reason)


def _row(
    stage: RejectingStage, name: str, accuracy: float | None, drop: Mapping[str, Any], reason: str
) -> RejectedStep:
    return {
        "stage": stage,
        "what": name,
        "accuracy_validation": accuracy,
        "drop_pp": drop["drop_pp"],
        "bound_pp": drop["bound_pp"],
        "reason": reason,
    }
