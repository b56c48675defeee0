"""Alerts on the budget of the objective: several windows, several burn rates.

Method: Google, The Site Reliability Workbook, chapter 5, "Multiwindow, Multi-Burn-Rate Alerts". The long window says
that it matters, the short one that it still goes on. Few requests are met by a least number of bad ones.
"""

from __future__ import annotations

from typing import NamedTuple

from edgekit.serve.export._monitoring.alert import PAGE, TICKET, Alert
from edgekit.serve.export._monitoring.objective import LATENCY_BUDGET, Objective
from edgekit.serve.export._monitoring.recording import SECONDS

FEWEST = 5
"""So many slow or refused requests in the long window: one of a quiet night wakes nobody."""


class Burn(NamedTuple):
    """A budget that is used `rate` times as fast as it may be; 1 uses all of it in its period."""

    rate: float
    long: str
    short: str
    severity: str


BURNS = (
    Burn(14.4, "1h", "5m", PAGE),
    Burn(6, "6h", "30m", PAGE),
    Burn(3, "1d", "2h", TICKET),
    Burn(1, "3d", "6h", TICKET),
)


def alerts(objective: Objective) -> list[Alert]:
    """Latency and availability, at each burn rate."""
    return [make(objective, burn) for make in (_latency, _availability) for burn in BURNS]


def _latency(objective: Objective, burn: Burn) -> Alert:
    return Alert(
        "EdgekitLatencyBudgetBurn",
        burn.severity,
        _expression("slow", LATENCY_BUDGET, burn),
        "",
        "{{ $labels.model }} {{ $labels.version }} is slower than promised",
        f"{{{{ $value | humanizePercentage }}}} of the answers of the last {burn.long} took longer than "
        f"{objective.bound_ms:.4g} ms; 1 % may. The budget is used {burn.rate:g} times too fast.",
        (
            "Latency by part: which of queue, preprocess, execute and postprocess has grown?",
            "Traffic and batches: do more or larger requests come than the curve at start-up was measured for?",
            "The machine: throttled, hot, a lower clock, or another process on its cores?",
        ),
        _labels(burn),
    )


def _availability(objective: Objective, burn: Burn) -> Alert:
    return Alert(
        "EdgekitAvailabilityBudgetBurn",
        burn.severity,
        _expression("refused", objective.availability_budget, burn),
        "",
        "{{ $labels.model }} {{ $labels.version }} refuses more than promised",
        f"{{{{ $value | humanizePercentage }}}} of the requests of the last {burn.long} were refused or failed; "
        f"{objective.availability_budget * 100:.6g} % may. The budget is used {burn.rate:g} times too fast.",
        (
            "Refusals by reason: busy and late mean too much load, failed means the interpreter.",
            "The server's log: the line of the first failure, and workers that were started again.",
            "Queue and execute: is the model slower than before, or do more requests come?",
        ),
        _labels(burn),
    )


def _expression(what: str, budget: float, burn: Burn) -> str:
    rate, share = f"model:edgekit_{what}:rate", f"model:edgekit_{what}:share_rate"
    limit = f"{burn.rate:g} * {budget:.6g}"
    return (
        f"{share}{burn.long} > {limit}\n"
        f"and {share}{burn.short} > {limit}\n"
        f"and {rate}{burn.long} * {SECONDS[burn.long]} >= {FEWEST}"
    )


def _labels(burn: Burn) -> dict[str, str]:
    return {"long": burn.long, "short": burn.short}
