"""Was it worth it? What the run has cost, what each call saves, and the number of calls that pays for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.cost import (
    BreakEven,
    BreakEvenAnswer,
    CallCost,
    CallCosts,
    Cost,
    CostUnit,
    Estimate,
    Prices,
    RunCost,
)
from edgekit.report.formatting import count

HOUR_S = 3600
KWH_J = 3.6e6
DAY_CALLS = 86_400
"""Calls of a day, one a second."""


def prices_of(cost: Mapping[str, Any] | None) -> Prices | None:
    """What the section `benchmark.cost` of a config says of money; None where no price is given."""
    given = cost or {}
    if given.get("per_cpu_hour") is None and given.get("per_kwh") is None:
        return None
    of: dict[str, Any] = {name: given.get(name) for name in ("per_cpu_hour", "per_kwh")}
    numbers = {name: None if value is None else float(value) for name, value in of.items()}
    return cast("Prices", {**numbers, "currency": given.get("currency", "")})


def build(benchmark: Artifact, chain: Sequence[Artifact], prices: Prices | None) -> Cost:
    """What calls cost and what the run has cost; `chain` holds the artifacts of the run so far."""
    measured: CallCosts = benchmark.metrics["cost"]
    calls = [_with_money(row, prices) for row in measured["calls"]]
    walk = _walk(chain, measured, prices)
    metrics = benchmark.metrics
    names = dict.fromkeys(name for name in (metrics["winner"], *metrics["winners"].values()) if name)
    by_name = {row["name"]: row for row in calls}
    found = [row for name in names for row in _break_even(by_name[name], walk, measured, prices)]
    return {**measured, "calls": calls, "prices": prices, "walk": walk, "break_even": found}


def break_even(
    walk: Estimate | None, saved: Estimate | None
) -> tuple[BreakEvenAnswer, float | None, float | None, float | None]:
    """The answer, and after how many calls, with both ends of that; None for an end that there is not.

    `saved` by each call. The fewest calls are those of the cheapest run and the largest saving.
    """
    if walk is None or saved is None:
        return "unknown", None, None, None
    if saved["high"] <= 0:
        return "never", None, None, None
    fewest = walk["low"] / saved["high"]
    calls = walk["value"] / saved["value"] if saved["value"] > 0 else None
    if saved["low"] <= 0:
        return "perhaps never", calls, fewest, None
    return "after", calls, fewest, walk["high"] / saved["low"]


def _break_even(row: CallCost, walk: RunCost, measured: CallCosts, prices: Prices | None) -> Iterable[BreakEven]:
    cpu_s = None if walk["cpu_s"] is None else _exactly(walk["cpu_s"])
    yield _row(row["name"], "CPU-seconds", cpu_s, row["saved_cpu_s"])
    if measured["energy"]:
        yield _row(row["name"], "joules", walk["joules"], row["saved_joules"])
    if prices:
        yield _row(row["name"], "money", walk["money"], row.get("saved_money"))


def _row(name: str, unit: CostUnit, walk: Estimate | None, saved: Estimate | None) -> BreakEven:
    answer, calls, low, high = break_even(walk, saved)
    return {
        "name": name,
        "unit": unit,
        "walk": walk and walk["value"],
        "saved": saved,
        "answer": answer,
        "calls": calls,
        "calls_low": low,
        "calls_high": high,
        "text": _text(answer, calls, low, high),
    }


def _text(answer: BreakEvenAnswer, calls: float | None, low: float | None, high: float | None) -> str:
    if answer == "unknown":
        return "unknown, because the cost of the run is not known"
    if answer == "never":
        return "never, because a call takes no less than one of the baseline"
    if answer == "perhaps never":
        return f"perhaps never, at best after {rounded(low)} calls, because the interval of the saving contains zero"
    days = f"{_three(calls / DAY_CALLS)} days" if calls and calls >= DAY_CALLS else "less than a day"
    return f"after {rounded(calls)} calls ({rounded(low)} to {rounded(high)}), {days} at one a second"


def rounded(calls: float | None) -> str:
    """Three digits of a number of calls: 1,230,000."""
    if calls is None:
        return "–"
    return count(float(f"{max(calls, 1):.3g}"))


def _three(value: float) -> str:
    return count(value) if value >= 100 else f"{value:.3g}"


def _walk(chain: Sequence[Artifact], measured: CallCosts, prices: Prices | None) -> RunCost:
    """What all stages took: the energy by what a second of the processor took in the benchmark."""
    took = {found.stage: found.took.get("cpu_seconds") for found in chain}
    unknown = [stage for stage, seconds in took.items() if seconds is None]
    cpu_s = None if unknown else float(sum(seconds for seconds in took.values() if seconds is not None))
    joules = None if cpu_s is None else _by_cpu(cpu_s, measured["calls"])
    notes = [f"not recorded by the version of edgekit that made: {', '.join(unknown)}"] if unknown else []
    if joules is not None:
        notes.append(
            "its energy is an estimate: its CPU-seconds times the joules per CPU-second of the benchmark's calls"
        )
    if prices and prices["per_kwh"] is not None and not measured["energy"]:
        notes.append(f"the money does not include energy, which is unknown: {measured['energy_unknown']}")
    lost = cpu_s is not None and joules is None and measured["energy"] is not None
    if lost:
        notes.append(
            "its energy is unknown, because other processes used too much; measure again when the machine is quiet"
        )
    half = lost and prices is not None and prices["per_kwh"] is not None  # a call's money has energy in it
    money = None if cpu_s is None or half else _money(_exactly(cpu_s), joules, prices)
    return {"cpu_s": cpu_s, "unknown": unknown, "joules": joules, "money": money, "notes": notes}


def _by_cpu(cpu_s: float, calls: Sequence[CallCost]) -> Estimate | None:
    """Joules of so much work; from the variant whose CPU-second took least to the one whose took most."""
    known = [(row["joules"], row["cpu_s"]["value"]) for row in calls]
    each = sorted(joules["value"] / seconds for joules, seconds in known if joules is not None and seconds > 0)
    if not each or each[0] <= 0:
        return None
    return {"value": cpu_s * each[len(each) // 2], "low": cpu_s * each[0], "high": cpu_s * each[-1]}


def _with_money(row: CallCost, prices: Prices | None) -> CallCost:
    found = {**row}
    if money := _money(row["cpu_s"], row["joules"], prices):
        found["money"] = money
    if saved := _money(row["saved_cpu_s"], row["saved_joules"], prices):
        found["saved_money"] = saved
    return cast("CallCost", found)


def _money(cpu_s: Estimate | None, joules: Estimate | None, prices: Prices | None) -> Estimate | None:
    """At the prices that are given, of what is known; the interval is no narrower than it may be."""
    if prices is None or cpu_s is None:
        return None
    parts = [(cpu_s, prices["per_cpu_hour"], HOUR_S), (joules, prices["per_kwh"], KWH_J)]
    known = [(found, price / per) for found, price, per in parts if found is not None and price is not None]
    if not known:
        return None

    def sum_of(end: str) -> float:
        return sum(cast("dict[str, float]", found)[end] * price for found, price in known)

    return {"value": sum_of("value"), "low": sum_of("low"), "high": sum_of("high")}


def _exactly(value: float) -> Estimate:
    return {"value": value, "low": value, "high": value}


def chain_to(last: Artifact) -> list[Artifact]:
    """An artifact and all that it was made from, the origin first."""
    chain = [last]
    while parent := chain[0].parent:
        chain.insert(0, chain[0].ancestor(parent["stage"]))
    return chain


def worth(cost: Cost) -> list[str]:
    """Was it worth it, in sentences: what the run has cost, then an answer for each variant and unit."""
    currency = cost["prices"]["currency"] if cost["prices"] else ""
    walk = cost["walk"]
    spent = (
        [f"{_three(walk['cpu_s'])} CPU-seconds"] if walk["cpu_s"] is not None else ["an unknown number of CPU-seconds"]
    )
    spent += [f"about {_three(walk['joules']['value'] / 1000)} kJ"] if walk["joules"] else []
    spent += [f"{_three(walk['money']['value'])} {currency}"] if walk["money"] else []
    said = [f"The run has cost {', '.join(spent)}{''.join(f'; {note}' for note in walk['notes'])}."]
    if not cost["break_even"]:
        return [*said, "Nothing ships, so no call pays it back."]
    for row in cost["break_even"]:
        unit = currency if row["unit"] == "money" else row["unit"]
        said.append(f"{row['name']}, in {unit}: {row['text']}.")
    return said
