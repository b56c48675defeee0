"""The speed-up of each step, the value of the winner, and the nearest miss if nothing won."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit.core.config import Budget
from edgekit.measure.forecast import way_of
from edgekit.runner.measure.intervals import Ratio
from edgekit.stages.benchmark.timings import Timings

ANCESTORS = {
    "baseline": ("baseline",),
    "student": ("baseline", "student"),
    "pruned": ("baseline", "student", "pruned"),
    "sparse": ("baseline", "student"),
}
"""The networks on the way to each network, itself last; unstructured sparsity is a step of its own."""

Row = dict[str, Any]


def waterfall(winner: Row, rows: list[Row], timings: Timings, baseline: Row) -> list[Row]:
    """From the baseline to the winner, one step at a time on the winner's target, each with its speed-up.

    A step that leads away from the winner (int8 that is slower than float, say) is shown as not kept. A gain
    is a ratio with its interval: an interval that holds 1 is no measurable gain.
    """
    wanted = [
        ("convert", "baseline", "fp32"),
        ("distill", "student", "fp32"),
        ("prune", "pruned", "fp32"),
        ("quantize", winner["model"], "int8"),
    ]
    found = {(row["model"], row["precision"]): row for row in rows if row["target"] == winner["target"]}
    before = baseline["name"]
    steps = [
        {"step": way_of(baseline["interpreter"]), "variant": before, "p50_ms": timings.p50_ms(before), "kept": True}
    ]
    for step, model, precision in wanted:
        row = found.get((model, precision))
        if row is None:
            continue
        kept = row["name"] == winner["name"] or (precision == "fp32" and model in ANCESTORS[winner["model"]])
        steps.append(_step(step, row["name"], before, timings, kept))
        before = row["name"] if kept else before
    if winner["name"] not in {step["variant"] for step in steps}:
        label = winner["precision"] if winner["model"] == "pruned" else f"{winner['model']} {winner['precision']}"
        steps.append(_step(label, winner["name"], before, timings, True))
    return steps


def with_interval(name: str, ratio: Ratio | None) -> Row:
    """A ratio and the ends of its interval, as fields of a record; nulls where nothing was compared."""
    ends = (ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def verdict(overall: Row | None, post_training: str | None, baseline: Row, timings: Timings) -> Row:
    """The overall winner against the unmodified baseline and the best post-training int8 variant."""
    if overall is None:
        return {"met": False}
    name = overall["name"]
    return {
        "met": True,
        "winner": name,
        "p50_ms": timings.p50_ms(name),
        **with_interval("speedup_vs_eager", timings.ratio(baseline["name"], name)),
        **with_interval(
            "speedup_vs_post_training_baseline", timings.ratio(post_training, name) if post_training else None
        ),
        "drop_validation_pp": overall["drop_pp"],
        "bound_validation_pp": overall["bound_pp"],
        "confidence": overall["confidence"],
        "drop_test_pp": 100 * (baseline["accuracy_test"] - overall["accuracy_test"]),
        "size_ratio": baseline["bytes"] / overall["bytes"],
    }


def post_training_baseline(rows: Iterable[Row], timings: Timings) -> str | None:
    """The fastest int8 variant of the original network."""
    found = [row for row in rows if row["model"] == "baseline" and row["precision"] == "int8"]
    ranked = sorted(found, key=lambda row: (timings.p50_ms(row["name"]), row["bytes"], row["name"]))
    return ranked[0]["name"] if ranked else None


def nearest_miss(rows: list[Row], too_slow: Iterable[str], timings: Timings, budget: Budget) -> Row | None:
    """The variant that exceeds its limits by the smallest share in all, of equals the fastest."""

    def excess(row: Row) -> float:
        over = [(row["bound_pp"] - budget.accuracy_drop_pp) / max(budget.accuracy_drop_pp, 1.0)]
        if budget.latency_p50_ms and row["name"] in too_slow:
            over.append(timings.p50_ms(row["name"]) / budget.latency_p50_ms - 1)
        over += [row["bytes"] / budget.size_bytes - 1] if budget.size_bytes else []
        return sum(max(share, 0.0) for share in over)

    ranked = sorted(rows, key=lambda row: (excess(row), timings.p50_ms(row["name"]), row["name"]))
    return {**ranked[0], "p50_ms": timings.p50_ms(ranked[0]["name"])} if ranked else None


def _step(step: str, variant: str, before: str, timings: Timings, kept: bool) -> Row:
    bought = with_interval("gain", timings.ratio(before, variant))
    return {"step": step, "variant": variant, "p50_ms": timings.p50_ms(variant), **bought, "kept": kept}
