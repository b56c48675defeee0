"""Which pruning step is kept, and why; of a shape that was trained from new weights too, the better network."""

from __future__ import annotations

import dataclasses
from typing import Any

from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.stages.prune.config import Config

Step = dict[str, Any]
CHANNELS, WEIGHTS = "channels removed", "weights zeroed"
"""What the two ways of pruning do."""


def mark_kept(rows: list[Step]) -> list[Step]:
    """The last step inside the budget is kept; none inside: step 0, the unmodified student. All others have reasons."""
    inside = [row["step"] for row in rows if row["step"] and row["inside_budget"]]
    last = inside[-1] if inside else 0
    passed = f"step {last} goes further and is inside the budget too"
    return [
        {**row, "kept": row["step"] == last, "reason": "" if row["step"] == last else row["reason"] or passed}
        for row in rows
    ]


def best_so_far(rows: list[Step]) -> str:
    """The step that would be kept now, for progress; empty where none is inside the budget."""
    row = next(row for row in mark_kept(rows) if row["kept"])
    return f"step {row['step']}, {row['validation_accuracy']:.2%}" if row["step"] else ""


def kept_step(rows: list[Step]) -> int:
    """Its number."""
    return next(row["step"] for row in rows if row["kept"])


def scratched(rows: list[Step]) -> Step | None:
    """The step whose shape is worth a training from new weights: the kept one, or the nearest to the budget.

    None where nothing was removed.
    """
    smaller = [row for row in rows if row["parameters"] < rows[0]["parameters"]]
    kept = [row for row in smaller if row["kept"]]
    return kept[0] if kept else min(smaller, key=lambda row: row["bound_pp"], default=None)


def against_scratch(rows: list[Step], scratch: Step, drop: Drop, epochs: int) -> tuple[list[Step], dict[str, Any]]:
    """All rows, the one from new weights last, and the comparison; `drop`: from the fine-tuned one's answers to its.

    It is kept if it is significantly better and inside the budget; otherwise the earlier choice stays.
    """
    of = scratch["from_scratch"]
    sure = f"{100 * drop.confidence:g} % confidence, {drop.samples} samples"
    kept = drop.bound_pp < 0 and scratch["inside_budget"]
    gain = f"{-drop.drop_pp:+.2f} pp relative to step {of} with fine-tuning, at least {-drop.bound_pp:+.2f} ({sure})"
    if kept:
        rows = [_beaten(row, f"the same shape from new weights is significantly better: {gain}") for row in rows]
        reason = ""
    elif drop.bound_pp < 0:
        reason = scratch["reason"]
    else:
        reason = f"not significantly better than the fine-tuned one of its shape: {gain}"
    compared = {
        "of_step": of,
        "epochs": epochs,
        "validation_accuracy": scratch["validation_accuracy"],
        "tuned_accuracy": next(row["validation_accuracy"] for row in rows if row["step"] == of),
        "below_tuned": dataclasses.asdict(drop),
        "kept": kept,
        "reason": reason or f"significantly better than the fine-tuned one of its shape: {gain}",
    }
    return [*rows, {**scratch, "kept": kept, "reason": reason}], compared


def verdict(rows: list[Step], config: Config, what: str, hindrance: str = "") -> dict[str, Any]:
    """What is kept of one way of pruning, and why; `hindrance` says why nothing could be removed, or not everywhere."""
    kept = next(row for row in rows if row["kept"])
    return {
        "kept_step": kept["step"],
        "what": what,
        "validation_accuracy": kept["validation_accuracy"],
        "drop_pp": kept["drop_pp"],
        "bound_pp": kept["bound_pp"],
        "inside_budget": kept["inside_budget"],
        "macs": kept["macs"],
        "parameters": kept["parameters"],
        "sparsity": kept["sparsity"],
        "macs_ratio": rows[0]["macs"] / kept["macs"],
        "reason": _reason(kept, rows, config, what, hindrance),
    }


def _reason(kept: Step, rows: list[Step], config: Config, what: str, hindrance: str) -> str:
    allowed = f"{config.budget.accuracy_drop_pp:g} pp at {100 * config.budget.accuracy_confidence:g} % confidence"
    tuned = [row for row in rows if "from_scratch" not in row]
    drop = f"a drop of {kept['drop_pp']:.2f} pp, at most {kept['bound_pp']:.2f} pp ({kept['samples']} samples)"
    if tuned[-1]["nonzero_parameters"] == tuned[0]["nonzero_parameters"]:
        if hindrance:
            return f"nothing was removed: {hindrance}"
        if what == CHANNELS and config.structured == "latency":
            return "nothing was removed: no cut is significantly faster; lower channel_multiple, or raise rounds"
        if what == CHANNELS and config.channel_multiple > 1:
            return "nothing was removed: raise ratio, or lower channel_multiple, which rounded every cut away"
        return f"nothing was removed: raise {'ratio' if what == CHANNELS else 'sparsity'}"
    if "from_scratch" in kept:
        better = "significantly better than the fine-tuned one"
        return f"the shape of step {kept['from_scratch']} from new weights is {better}: {drop}"
    if kept["step"] == 0:
        nearest = min(tuned[1:], key=lambda row: row["bound_pp"])
        return f"rejected: no step stayed within {allowed}; step {nearest['step']} came nearest: {nearest['reason']}"
    return f"step {kept['step']} of {len(tuned) - 1} is the last within {allowed}: {drop}"


def _beaten(row: Step, reason: str) -> Step:
    return {**row, "kept": False, "reason": reason} if row["kept"] else row
