"""What a call costs by variant, and when the run is paid for: the same table in notebook and page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.cost import CallCost, Cost, Estimate
from edgekit.report import costs
from edgekit.report.columns import Column, as_table
from edgekit.report.formatting import Table, milliseconds, milliseconds_with_ends

MILLION = 1_000_000
NOT_MEASURED = "an earlier edgekit measured this benchmark, and no cost with it"


def cost_of(artifact: Artifact, given: Mapping[str, Any] | None = None) -> Cost | None:
    """Of a sealed benchmark, with the stages up to it; `given` is the section `benchmark.cost`, for its prices."""
    return costs.build(artifact, costs.chain_to(artifact), costs.prices_of(given))


def cost(artifact: Artifact, given: Mapping[str, Any] | None = None) -> Table:
    """Every variant's cost of a call, the baseline first."""
    found = cost_of(artifact, given)
    if found is None:
        return Table(("variant", "cost"), [], NOT_MEASURED)
    return as_table(columns(found), found["calls"], caption(found))


def columns(found: Cost) -> list[Column[CallCost]]:
    """Processor time always; energy and money where they are known."""
    shown: list[Column[CallCost]] = [
        Column("variant", lambda row: row["name"], numeric=False),
        Column("CPU, ms a call", lambda row: _plain(row["cpu_s"], 1000)),
        Column("saved, ms", lambda row: _signed(row["saved_cpu_s"], 1000)),
    ]
    if found["energy"]:
        shown += [
            Column("energy, mJ a call", lambda row: _plain(row["joules"], 1000)),
            Column("with idle, mJ", lambda row: milliseconds(_times(row["joules_with_idle"], 1000))),
        ]
    if found["prices"] and any("money" in row for row in found["calls"]):
        unit = f"{found['prices']['currency']} a million calls"
        shown.append(Column(unit, lambda row: _plain(row.get("money"), MILLION)))
    return shown


def caption(found: Cost) -> str:
    """How it was measured, and why energy is not there."""
    how = f"{found['protocol'][0].upper()}{found['protocol'][1:]}"
    said = f"{how}; in brackets {100 * found['confidence']:g} % intervals; saved: against the baseline"
    energy = found["energy"]
    if energy is None:
        return f"{said}. Energy is unknown: {found['energy_unknown']}"
    watts = energy["idle_watts"]
    idle = f"{watts['value']:.3g} W ({watts['low']:.3g}–{watts['high']:.3g})"
    return (
        f"{said}. Energy by {energy['source']}, {energy['rounds']} blocks of {energy['seconds']:g} s, without the "
        f"{idle} of the idle machine; what other processes take is in it"
    )


def _plain(found: Estimate | None, by: float) -> str:
    if found is None:
        return "–"
    return milliseconds_with_ends(by * found["value"], by * found["low"], by * found["high"])


def _signed(found: Estimate | None, by: float) -> str:
    if found is None:
        return "–"
    return f"{by * found['value']:+.3g} ({by * found['low']:+.3g} to {by * found['high']:+.3g})"


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else by * value
