"""The limits of each target as a run's variants are held to them: bytes, references, and the figures beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgekit.core.budget import BASELINE, Limits
from edgekit.core.config import Budget
from edgekit.core.errors import StageError
from edgekit.core.schema.devices import DeviceClass, on_deciding
from edgekit.core.schema.limits import BesideReference, RowLimits
from edgekit.core.schema.variants import CheckedVariant
from edgekit.stages.benchmark.timings import Timings

OWN = "the limit of its target"


def reference(of: str, target: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The name under which a reference was timed; StageError for a baseline without a float file on the target."""
    return str(_float_baseline(target, rows)["name"]) if of == BASELINE else of


def references(rows: Sequence[Mapping[str, Any]], budget: Budget, targets: Iterable[str]) -> set[str]:
    """What must be timed beside the variants of these targets, by the names of rows and rivals."""
    held = {target: budget.limits(target).latency_p50 for target in targets}
    return {reference(limit.of, target, rows) for target, limit in held.items() if limit is not None}


def baseline_bytes(target: str, rows: Iterable[Mapping[str, Any]], limits: Limits) -> int | None:
    """Of the baseline's float file on the target, where its size is what limits it."""
    if limits.size is None or limits.size.of != BASELINE:
        return None
    return int(_float_baseline(target, rows)["bytes"])


def beside_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget
) -> dict[str, BesideReference]:
    """`beside` of a row whose limit is relative: how its p50 compares with the reference's in the same rounds."""
    relative = budget.limits(row["target"]).latency_p50
    if relative is None:
        return {}
    name = reference(relative.of, row["target"], rows)
    if not {row["name"], name} <= timings.samples_ms.keys():  # devices are sent only what may win
        return {}
    found = timings.ratio(row["name"], name)
    figures = {"ratio": found.ratio, "ratio_low": found.low, "ratio_high": found.high}
    return {"beside": {"name": name, "limit": relative.ratio, **figures}}  # type: ignore[typeddict-item]


def limits_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings | None, budget: Budget
) -> dict[str, RowLimits]:
    """`limits` of a row: what it was held to, where the budget's two numbers do not say it.

    Without `timings` nobody knows the ratio, as where devices decided in another run.
    """
    if budget.is_plain:
        return {}
    limits = budget.limits(row["target"])
    most = limits.most_bytes(baseline_bytes(row["target"], rows, limits))
    beside = beside_field(row, rows, timings, budget) if timings else {}
    return {"limits": {"latency_p50_ms": limits.latency_p50_ms, "size_bytes": most, **beside}}  # type: ignore[typeddict-item]


def excess(
    row: CheckedVariant,
    rows: Sequence[CheckedVariant],
    timings: Timings,
    budget: Budget,
    devices: DeviceClass | None,
) -> float:
    """By what share its p50 is over its limit; below 0 where it is not. Devices' p50s count where they decided."""

    def deciding_ms(name: str) -> float:
        there_ms = on_deciding(devices, name)["p50_ms"] if devices else None
        return timings.p50_ms(name) if there_ms is None else there_ms

    limits = budget.limits(row["target"])
    if limits.latency_p50 is not None:
        name = reference(limits.latency_p50.of, row["target"], rows)
        ratio = deciding_ms(row["name"]) / deciding_ms(name) if devices else timings.ratio(row["name"], name).ratio
        return ratio / limits.latency_p50.ratio - 1
    return deciding_ms(row["name"]) / limits.latency_p50_ms - 1 if limits.latency_p50_ms else 0.0


def words(budget: Budget, targets: Iterable[str]) -> str:
    """The limit of latency as a decision names it: `0.052 ms`; empty where no target has one."""
    found = {budget.limits(target).latency_words() for target in targets}
    return OWN if len(found) > 1 else found.pop() if found else ""


def _float_baseline(target: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    wanted = (BASELINE, "fp32", target)
    found = next((row for row in rows if (row["model"], row["precision"], row["target"]) == wanted), None)
    if found is None:
        raise StageError(
            f"budget: a limit of {target} is relative to the baseline, and there is no float file of it; see in "
            f"notebook 05 why, or give {target} an absolute limit in budget.targets"
        )
    return found
