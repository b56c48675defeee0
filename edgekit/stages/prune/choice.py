"""Select a pruning step by the accuracy budget, and compare it with the same shape trained from new weights."""

from __future__ import annotations

import dataclasses
from typing import Any

from edgekit.core.tasks.accuracy_drop import Drop
from edgekit.stages.prune.config import PruneConfig

Step = dict[str, Any]
CHANNELS, WEIGHTS = "channels removed", "weights zeroed"
"""How `decision.json` describes structured and unstructured pruning."""


def mark_selected(rows: list[Step]) -> list[Step]:
    """Mark the last step inside the budget as kept, or step 0 (the unpruned student) if there is none.

    Every other step gets the reason why it was not kept.
    """
    inside = [row["step"] for row in rows if row["step"] and row["inside_budget"]]
    selected = inside[-1] if inside else 0
    superseded = f"step {selected} goes further and is inside the budget too"
    return [
        {
            **row,
            "kept": row["step"] == selected,
            "reason": "" if row["step"] == selected else row["reason"] or superseded,
        }
        for row in rows
    ]


def best_so_far(rows: list[Step]) -> str:
    """Describe the step that would be selected now, for the progress display; empty if none is inside the budget."""
    row = next(row for row in mark_selected(rows) if row["kept"])
    return f"step {row['step']}, {row['validation_accuracy']:.2%}" if row["step"] else ""


def selected_step_number(rows: list[Step]) -> int:
    """Return the number of the step that `mark_selected` kept."""
    return next(row["step"] for row in rows if row["kept"])


def step_to_retrain(rows: list[Step]) -> Step | None:
    """Pick the step to train again from new weights: the selected one, or the one closest to the budget.

    Returns None if no step removed anything.
    """
    smaller = [row for row in rows if row["parameters"] < rows[0]["parameters"]]
    selected = [row for row in smaller if row["kept"]]
    return selected[0] if selected else min(smaller, key=lambda row: row["bound_pp"], default=None)


def compare_with_retrained(
    rows: list[Step], retrained: Step, drop: Drop, epochs: int
) -> tuple[list[Step], dict[str, Any]]:
    """Append the retrained network to the steps and compare it with the fine-tuned network of the same shape.

    `drop` is the accuracy drop from the fine-tuned to the retrained network. The retrained network is selected if it is
    significantly better and inside the budget; otherwise the selection does not change.

    Returns the steps and the `from_scratch` record of `decision.json`.
    """
    retrained_step = retrained["from_scratch"]
    confidence_note = f"{100 * drop.confidence:g} % confidence, {drop.samples} samples"
    is_better = drop.bound_pp < 0 and retrained["inside_budget"]
    gain_note = (
        f"{-drop.drop_pp:+.2f} pp relative to step {retrained_step} with fine-tuning, at least {-drop.bound_pp:+.2f} "
        f"({confidence_note})"
    )
    if is_better:
        rows = [
            _mark_superseded(row, f"the same shape from new weights is significantly better: {gain_note}")
            for row in rows
        ]
        reason = ""
    elif drop.bound_pp < 0:
        reason = retrained["reason"]
    else:
        reason = f"not significantly better than the fine-tuned one of its shape: {gain_note}"
    comparison = {
        "of_step": retrained_step,
        "epochs": epochs,
        "validation_accuracy": retrained["validation_accuracy"],
        "tuned_accuracy": next(row["validation_accuracy"] for row in rows if row["step"] == retrained_step),
        "below_tuned": dataclasses.asdict(drop),
        "kept": is_better,
        "reason": reason or f"significantly better than the fine-tuned one of its shape: {gain_note}",
    }
    return [*rows, {**retrained, "kept": is_better, "reason": reason}], comparison


def summarize_choice(rows: list[Step], config: PruneConfig, technique: str, limitation: str = "") -> dict[str, Any]:
    """Summarize the selected step of one technique (`CHANNELS` or `WEIGHTS`) for `decision.json`.

    `limitation` says why the network could not be pruned, or not in all layers; empty if it could.
    """
    selected = next(row for row in rows if row["kept"])
    return {
        "kept_step": selected["step"],
        "what": technique,
        "validation_accuracy": selected["validation_accuracy"],
        "drop_pp": selected["drop_pp"],
        "bound_pp": selected["bound_pp"],
        "inside_budget": selected["inside_budget"],
        "macs": selected["macs"],
        "parameters": selected["parameters"],
        "sparsity": selected["sparsity"],
        "macs_ratio": rows[0]["macs"] / selected["macs"],
        "reason": _explain_choice(selected, rows, config, technique, limitation),
    }


def _explain_choice(selected: Step, rows: list[Step], config: PruneConfig, technique: str, limitation: str) -> str:
    allowed = f"{config.budget.accuracy_drop_pp:g} pp at {100 * config.budget.accuracy_confidence:g} % confidence"
    fine_tuned = [row for row in rows if "from_scratch" not in row]
    drop = (
        f"a drop of {selected['drop_pp']:.2f} pp, at most {selected['bound_pp']:.2f} pp ({selected['samples']} samples)"
    )
    if fine_tuned[-1]["nonzero_parameters"] == fine_tuned[0]["nonzero_parameters"]:
        if limitation:
            return f"nothing was removed: {limitation}"
        if technique == CHANNELS and config.structured == "latency":
            return "nothing was removed: no cut is significantly faster; lower channel_multiple, or raise rounds"
        if technique == CHANNELS and config.channel_multiple > 1:
            return "nothing was removed: raise ratio, or lower channel_multiple, which rounded every cut away"
        return f"nothing was removed: raise {'ratio' if technique == CHANNELS else 'sparsity'}"
    if "from_scratch" in selected:
        shape = f"the shape of step {selected['from_scratch']} from new weights"
        return f"{shape} is significantly better than the fine-tuned one: {drop}"
    if selected["step"] == 0:
        nearest = min(fine_tuned[1:], key=lambda row: row["bound_pp"])
        return f"rejected: no step stayed within {allowed}; step {nearest['step']} came nearest: {nearest['reason']}"
    return f"step {selected['step']} of {len(fine_tuned) - 1} is the last within {allowed}: {drop}"


def _mark_superseded(row: Step, reason: str) -> Step:
    return {**row, "kept": False, "reason": reason} if row["kept"] else row
