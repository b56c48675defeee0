"""Decide: which variants meet the budget, which of them wins its target, and what each step of the walk bought."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit.config import Budget

CAME_FROM = {
    "baseline": ("baseline",),
    "student": ("baseline", "student"),
    "pruned": ("baseline", "student", "pruned"),
    "sparse": ("baseline", "student"),
}
"""Which networks a walk to each of them passes, itself last; zeros are a step of their own."""

Row = dict[str, Any]
Latencies = dict[str, dict[str, float]]


def decide(rows: list[Row], latencies: Latencies, budget: Budget, targets: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Split into `content` (what follows from bytes and accuracies, plus who won) and `evidence` (every latency).

    The first row is the baseline in PyTorch eager. Accuracy is judged on validation; the fastest variant inside the
    budget wins its target, of equals the smaller, then the first by name.
    """
    baseline, *candidates = rows
    judged = [judge(row, latencies[row["name"]], baseline, budget) for row in candidates]
    order = {row["name"]: (latencies[row["name"]]["p50_ms"], row["bytes"], row["name"]) for row in judged}
    inside = sorted((row for row in judged if row["inside_budget"]), key=lambda row: order[row["name"]])
    winners = {target: _first(row for row in inside if row["target"] == target) for target in targets}
    won = {target: row["name"] for target, row in winners.items() if row}
    overall = inside[0] if inside else None
    post_training = _first(
        sorted(
            (row for row in judged if row["model"] == "baseline" and row["precision"] == "int8"),
            key=lambda row: order[row["name"]],
        )
    )
    evidence = {
        "rows": [{**row, **latencies[row["name"]]} for row in [baseline, *judged]],
        "waterfall": waterfall(overall, judged, latencies, baseline) if overall else [],
        "verdict": _verdict(overall, post_training, baseline, latencies),
        "nearest_miss": None if overall else _nearest_miss(judged, latencies, budget),
        "unmet": {
            target: _nearest_miss([row for row in judged if row["target"] == target], latencies, budget)
            for target in targets
            if target not in won
        },
    }
    content = {
        "variants": [baseline, *judged],
        "winners": won,
        "winner": overall["name"] if overall else None,
        "post_training_baseline": post_training["name"] if post_training else None,
        "budget": budget.model_dump(),
    }
    return {"content": content, "evidence": evidence}


def judge(row: Row, latency: dict[str, float], baseline: Row, budget: Budget) -> Row:
    """The row with its drop in percentage points on validation and every limit that it breaks."""
    drop_pp = 100 * (baseline["accuracy_validation"] - row["accuracy_validation"])
    broken = []
    # half of a millionth of a point: a drop of exactly the budget must not fail by rounding
    if drop_pp > budget.accuracy_drop_pp + 5e-7:
        broken.append(f"accuracy drop {drop_pp:.2f} pp is over {budget.accuracy_drop_pp:g} pp")
    if budget.latency_p50_ms is not None and latency["p50_ms"] > budget.latency_p50_ms:
        broken.append(f"p50 is over {budget.latency_p50_ms:g} ms")
    if budget.size_bytes is not None and row["bytes"] > budget.size_bytes:
        broken.append(f"{row['bytes']:,} bytes are over {budget.size_bytes:,}")
    return {**row, "drop_pp": drop_pp, "inside_budget": not broken, "reasons": broken}


def waterfall(winner: Row, rows: list[Row], latencies: Latencies, baseline: Row) -> list[Row]:
    """From the baseline to the winner, one step at a time on the winner's target, each with what it bought.

    A step that leads away from the winner (int8 that is slower than float, say) is shown as not kept.
    """
    wanted = [
        ("convert", "baseline", "fp32"),
        ("distill", "student", "fp32"),
        ("prune", "pruned", "fp32"),
        ("quantize", winner["model"], "int8"),
    ]
    found = {(row["model"], row["precision"]): row for row in rows if row["target"] == winner["target"]}
    steps = [{"step": "PyTorch eager", "variant": baseline["name"], "p50_ms": _p50(latencies, baseline), "kept": True}]
    kept_ms = _p50(latencies, baseline)
    for step, model, precision in wanted:
        row = found.get((model, precision))
        if row is None:
            continue
        kept = row["name"] == winner["name"] or (precision == "fp32" and model in CAME_FROM[winner["model"]])
        p50_ms = _p50(latencies, row)
        steps.append({"step": step, "variant": row["name"], "p50_ms": p50_ms, "gain": kept_ms / p50_ms, "kept": kept})
        kept_ms = p50_ms if kept else kept_ms
    if steps[-1]["variant"] != winner["name"] and winner["name"] not in {step["variant"] for step in steps}:
        p50_ms = _p50(latencies, winner)
        label = winner["precision"] if winner["model"] == "pruned" else f"{winner['model']} {winner['precision']}"
        steps.append(
            {"step": label, "variant": winner["name"], "p50_ms": p50_ms, "gain": kept_ms / p50_ms, "kept": True}
        )
    return steps


def _verdict(overall: Row | None, post_training: Row | None, baseline: Row, latencies: Latencies) -> Row:
    if overall is None:
        return {"met": False}
    p50_ms = _p50(latencies, overall)
    return {
        "met": True,
        "winner": overall["name"],
        "p50_ms": p50_ms,
        "speedup_vs_eager": _p50(latencies, baseline) / p50_ms,
        "speedup_vs_post_training_baseline": _p50(latencies, post_training) / p50_ms if post_training else None,
        "drop_validation_pp": overall["drop_pp"],
        "drop_test_pp": 100 * (baseline["accuracy_test"] - overall["accuracy_test"]),
        "size_ratio": baseline["bytes"] / overall["bytes"],
    }


def _nearest_miss(rows: list[Row], latencies: Latencies, budget: Budget) -> Row | None:
    """The variant that exceeds its limits by the smallest share in all, of equals the fastest."""

    def excess(row: Row) -> float:
        p50_ms = _p50(latencies, row)
        over = [(row["drop_pp"] - budget.accuracy_drop_pp) / max(budget.accuracy_drop_pp, 1.0)]
        over += [p50_ms / budget.latency_p50_ms - 1] if budget.latency_p50_ms else []
        over += [row["bytes"] / budget.size_bytes - 1] if budget.size_bytes else []
        return sum(max(share, 0.0) for share in over)

    ranked = sorted(rows, key=lambda row: (excess(row), _p50(latencies, row)))
    return {**ranked[0], "p50_ms": _p50(latencies, ranked[0])} if ranked else None


def _p50(latencies: Latencies, row: Row) -> float:
    return latencies[row["name"]]["p50_ms"]


def _first(rows: Iterable[Row]) -> Row | None:
    return next(iter(rows), None)
