"""Summarize a benchmark: the speed-up of each step, the verdict on the winner, or the nearest miss."""

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
"""For each network, the networks of the steps that lead to it. The sparse network is not in its own list, because the
waterfall shows sparsity as a separate last step."""


def waterfall(
    winner: CheckedVariant, rows: list[CheckedVariant], timings: Timings, baseline: ModelFacts
) -> list[WaterfallStep]:
    """Return the steps from the baseline to the winner on the winner's target, each with its speed-up.

    A step that does not lead to the winner is marked as not kept, for example int8 if it is slower than float. A gain
    is a ratio with its interval; if the interval contains 1, there is no measurable gain.
    """
    planned_steps: list[tuple[str, Model, Precision]] = [
        ("convert", "baseline", "fp32"),
        ("distill", "student", "fp32"),
        ("prune", "pruned", "fp32"),
        ("quantize", winner["model"], "int8"),
    ]
    rows_by_network = {(row["model"], row["precision"]): row for row in rows if row["target"] == winner["target"]}
    previous = baseline["name"]
    steps: list[WaterfallStep] = [
        {
            "step": baseline_runtime(baseline["interpreter"]),
            "variant": previous,
            "p50_ms": timings.p50_ms(previous),
            "kept": True,
        }
    ]
    for step, model, precision in planned_steps:
        row = rows_by_network.get((model, precision))
        if row is None:
            continue
        is_kept = row["name"] == winner["name"] or (precision == "fp32" and model in ANCESTORS[winner["model"]])
        steps.append(_step(step, row["name"], previous, timings, is_kept))
        previous = row["name"] if is_kept else previous
    if winner["name"] not in {step["variant"] for step in steps}:
        label = winner["precision"] if winner["model"] == "pruned" else f"{winner['model']} {winner['precision']}"
        steps.append(_step(label, winner["name"], previous, timings, True))
    return steps


def ratio_fields(name: str, ratio: RatioInterval | None) -> dict[str, float | None]:
    """Return a ratio and the bounds of its interval as fields of a record, or nulls if nothing was compared."""
    values = (ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def verdict(
    winner: CheckedVariant | None,
    post_training: str | None,
    baseline: ModelFacts,
    timings: Timings,
    devices: DeviceClass | None = None,
) -> BudgetMet | BudgetNotMet:
    """Compare the overall winner with the baseline and the best post-training int8 variant, on this machine."""
    if winner is None:
        return {"met": False}
    name = winner["name"]
    speedup = timings.ratio(baseline["name"], name)
    post_training_speedup = timings.ratio(post_training, name) if post_training else None
    record: BudgetMet = {
        "met": True,
        "winner": name,
        "p50_ms": timings.p50_ms(name),
        "speedup_vs_eager": speedup.ratio,
        "speedup_vs_eager_low": speedup.low,
        "speedup_vs_eager_high": speedup.high,
        "speedup_vs_post_training_baseline": post_training_speedup.ratio if post_training_speedup else None,
        "speedup_vs_post_training_baseline_low": post_training_speedup.low if post_training_speedup else None,
        "speedup_vs_post_training_baseline_high": post_training_speedup.high if post_training_speedup else None,
        "drop_validation_pp": winner["drop_pp"],
        "bound_validation_pp": winner["bound_pp"],
        "confidence": winner["confidence"],
        "drop_test_pp": 100 * (baseline["accuracy_test"] - winner["accuracy_test"]),
        "size_ratio": baseline["bytes"] / winner["bytes"],
    }

    if devices is not None:
        record["device"] = deciding_device_latency(devices, name)
    return record


def post_training_baseline(rows: Iterable[CheckedVariant], timings: Timings) -> str | None:
    """Return the name of the fastest int8 variant of the original network, or None."""
    int8_names = [row["name"] for row in rows if row["model"] == "baseline" and row["precision"] == "int8"]
    return timings.fastest(int8_names) if int8_names else None


def nearest_miss(
    rows: list[CheckedVariant],
    too_slow: Iterable[str],
    timings: Timings,
    budget: Budget,
    devices: DeviceClass | None = None,
    deciding: Timings | None = None,
) -> NearestMiss | None:
    """Return the variant that comes closest to its limits, or None if there are no variants.

    The excess over each limit is computed as a share of that limit, and the variant with the smallest sum is returned.
    If several have the same sum, the fastest of them is returned. `timings` are those of this machine. If `devices`
    decided, their latencies are compared with the limit instead. If the latency limit is relative, `deciding` has the
    timings by which the variant is compared with the reference of this limit.
    """

    def deciding_ms(name: str) -> float:
        device_ms = deciding_device_latency(devices, name)["p50_ms"] if devices else None
        return timings.p50_ms(name) if device_ms is None else device_ms

    def excess(row: CheckedVariant) -> float:
        shares = [(row["bound_pp"] - budget.accuracy_drop_pp) / max(budget.accuracy_drop_pp, 1.0)]
        if row["name"] in too_slow:
            shares.append(winners.latency_excess(row, rows, timings, budget, devices))
        limits = budget.limits(row["target"])
        max_bytes = limits.max_bytes(winners.baseline_bytes(row["target"], rows, limits))
        shares += [row["bytes"] / max_bytes - 1] if max_bytes else []
        return sum(max(share, 0.0) for share in shares)

    ranked = sorted(rows, key=lambda row: (excess(row), deciding_ms(row["name"]), row["name"]))
    if not ranked:
        return None
    name = ranked[0]["name"]
    limits_record = winners.limits_field(ranked[0], rows, deciding, budget)
    nearest = {**ranked[0], "p50_ms": timings.p50_ms(name), **device_field(devices, name), **limits_record}
    return cast("NearestMiss", nearest)


def device_field(devices: DeviceClass | None, name: str) -> dict[str, DecidingDeviceLatency]:
    """Return the `device` field of a variant's row, or no field if no devices decided."""
    return {} if devices is None else {"device": deciding_device_latency(devices, name)}


def _step(step: str, variant: str, previous: str, timings: Timings, is_kept: bool) -> WaterfallStep:
    gain = timings.ratio(previous, variant)
    return {
        "step": step,
        "variant": variant,
        "p50_ms": timings.p50_ms(variant),
        "gain": gain.ratio,
        "gain_low": gain.low,
        "gain_high": gain.high,
        "kept": is_kept,
    }
