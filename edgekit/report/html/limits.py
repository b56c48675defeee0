"""The limits of the budget, above what ships for each target."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.core.budget import Budget, Limits
from edgekit.core.schema.limits import Limits as Recorded
from edgekit.report.formatting import count, milliseconds
from edgekit.report.html.rows import Line


def lines(budget: Recorded, targets: Sequence[str], elsewhere: bool) -> list[Line]:
    """A line for the limits of all targets; where they differ, one for each.

    `elsewhere`: devices decided, so latencies of this machine have a column without a limit.
    """
    whole = Budget.model_validate(budget)
    found = {f"limit for {target}": _limit(whole.limits(target)) for target in targets}
    if len(set(found.values())) < 2:
        found = {"limit of the budget": _limit(whole.limits(targets[0] if targets else ""))}
    drop = f"≤ {budget['accuracy_drop_pp']:g}"
    return [
        Line([name, "", "", drop, *([latency, ""] if elsewhere else [latency]), size, ""], "limit")
        for name, (latency, size) in found.items()
    ]


def _limit(limits: Limits) -> tuple[str, str]:
    latency = "no limit"
    if limits.latency_p50 is not None:
        latency = f"≤ {limits.latency_words()}"
    elif limits.latency_p50_ms is not None:
        latency = f"≤ {milliseconds(limits.latency_p50_ms)}"
    size = f"≤ {count(limits.size_bytes)}" if limits.size_bytes else "no limit"
    return latency, size if limits.size is None else f"≤ {limits.size_words(unit='')}"
