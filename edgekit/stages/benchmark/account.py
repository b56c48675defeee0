"""The speed-up of each step, the value of the winner, and the nearest miss if nothing won."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from edgekit.core.config import Budget
from edgekit.core.schema.devices import DecidingDeviceLatency, DeviceClass, deciding_device_latency
from edgekit.core.schema.variants import (
    BudgetMet,
    BudgetNotMet,
    CheckedVariant,
    Model,
    ModelFacts,
    NearestMiss,
    Precision,
    WaterfallStep,
)
from edgekit.device.measure.intervals import RatioInterval
from edgekit.measure.forecast import baseline_runtime
from edgekit.stages.benchmark import winners
from edgekit.stages.benchmark.timings import Timings

ANCESTORS = {
    "baseline": ("baseline",),
    "student": ("baseline", "student"),
    "pruned": ("baseline", "student", "pruned"),
    "sparse": ("baseline", "student"),
}
"""The networks on the way to each network, itself last; unstructured sparsity is a step of its own."""


def waterfall(
    winner: CheckedVariant, rows: list[CheckedVariant], timings: Timings, baseline: ModelFacts
) -> list[WaterfallStep]:
    """From the baseline to the winner, one step at a time on the winner's target, each with its speed-up.

    A step that leads away from the winner (int8 that is slower than float, say) is shown as not kept. A gain
    is a ratio with its interval: an interval that holds 1 is no measurable gain.
    """
    wanted: list[tuple[str, Model, Precision]] = [
        ("convert", "baseline", "fp32"),
        ("distill", "student", "fp32"),
        ("prune", "pruned", "fp32"),
        ("quantize", winner["model"], "int8"),
    ]
    found = {(row["model"], row["precision"]): row for row in rows if row["target"] == winner["target"]}
    before = baseline["name"]
    steps: list[WaterfallStep] = [
        {
            "step": baseline_runtime(baseline["interpreter"]),
            "variant": before,
            "p50_ms": timings.p50_ms(before),
            "kept": True,
        }
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


def with_interval(name: str, ratio: RatioInterval | None) -> dict[str, float | None]:
    """A ratio and the ends of its interval, as fields of a record; nulls where nothing was compared."""
    ends = (ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))


def verdict(
    overall: CheckedVariant | None,
    post_training: str | None,
    baseline: ModelFacts,
    timings: Timings,
    devices: DeviceClass | None = None,
) -> BudgetMet | BudgetNotMet:
    """The overall winner against the unmodified baseline and the best post-training int8 variant, on this machine."""
    if overall is None:
        return {"met": False}
    name = overall["name"]
    faster = timings.ratio(baseline["name"], name)
    plainly = timings.ratio(post_training, name) if post_training else None
    met: BudgetMet = {
        "met": True,
        "winner": name,
        "p50_ms": timings.p50_ms(name),
        "speedup_vs_eager": faster.ratio,
        "speedup_vs_eager_low": faster.low,
        "speedup_vs_eager_high": faster.high,
        "speedup_vs_post_training_baseline": plainly.ratio if plainly else None,
        "speedup_vs_post_training_baseline_low": plainly.low if plainly else None,
        "speedup_vs_post_training_baseline_high": plainly.high if plainly else None,
        "drop_validation_pp": overall["drop_pp"],
        "bound_validation_pp": overall["bound_pp"],
        "confidence": overall["confidence"],
        "drop_test_pp": 100 * (baseline["accuracy_test"] - overall["accuracy_test"]),
        "size_ratio": baseline["bytes"] / overall["bytes"],
    }

    if devices is not None:
        met["device"] = deciding_device_latency(devices, name)
    return met


def post_training_baseline(rows: Iterable[CheckedVariant], timings: Timings) -> str | None:
    """The fastest int8 variant of the original network."""
    found = [row["name"] for row in rows if row["model"] == "baseline" and row["precision"] == "int8"]
    return timings.fastest(found) if found else None


def nearest_miss(
    rows: list[CheckedVariant],
    too_slow: Iterable[str],
    timings: Timings,
    budget: Budget,
    devices: DeviceClass | None = None,
    deciding: Timings | None = None,
) -> NearestMiss | None:
    """The variant that exceeds its limits by the smallest share in all, of equals the fastest.

    `timings` are of this machine; the limit of latency is held against those of the `devices`, where they decided.
    `deciding` tell how it compares with the reference of a relative limit.
    """

    def deciding_ms(name: str) -> float:
        there_ms = deciding_device_latency(devices, name)["p50_ms"] if devices else None
        return timings.p50_ms(name) if there_ms is None else there_ms

    def excess(row: CheckedVariant) -> float:
        over = [(row["bound_pp"] - budget.accuracy_drop_pp) / max(budget.accuracy_drop_pp, 1.0)]
        if row["name"] in too_slow:
            over.append(winners.excess(row, rows, timings, budget, devices))
        limits = budget.limits(row["target"])
        most = limits.max_bytes(winners.baseline_bytes(row["target"], rows, limits))
        over += [row["bytes"] / most - 1] if most else []
        return sum(max(share, 0.0) for share in over)

    ranked = sorted(rows, key=lambda row: (excess(row), deciding_ms(row["name"]), row["name"]))
    if not ranked:
        return None
    name = ranked[0]["name"]
    held = winners.limits_field(ranked[0], rows, deciding, budget)
    nearest = {**ranked[0], "p50_ms": timings.p50_ms(name), **device_field(devices, name), **held}
    return cast("NearestMiss", nearest)


def device_field(devices: DeviceClass | None, name: str) -> dict[str, DecidingDeviceLatency]:
    """A variant's row has it where devices decided."""
    return {} if devices is None else {"device": deciding_device_latency(devices, name)}


def _step(step: str, variant: str, before: str, timings: Timings, kept: bool) -> WaterfallStep:
    gain = timings.ratio(before, variant)
    return {
        "step": step,
        "variant": variant,
        "p50_ms": timings.p50_ms(variant),
        "gain": gain.ratio,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "kept": kept,
    }
