"""Compute what a run has cost, what each call saves, and after how many calls the run has paid for itself."""

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

SECONDS_PER_HOUR = 3600
JOULES_PER_KWH = 3.6e6
CALLS_PER_DAY = 86_400
"""The number of calls in a day at one call per second."""


def prices_of(cost: Mapping[str, Any] | None) -> Prices | None:
    """Return the prices in the section `benchmark.cost` of a config, or None if no price is set."""
    prices = cost or {}
    if prices.get("per_cpu_hour") is None and prices.get("per_kwh") is None:
        return None
    values: dict[str, Any] = {name: prices.get(name) for name in ("per_cpu_hour", "per_kwh")}
    numbers = {name: None if value is None else float(value) for name, value in values.items()}
    return cast("Prices", {**numbers, "currency": prices.get("currency", "")})


def cost_of_run(benchmark: Artifact, chain: Sequence[Artifact], prices: Prices | None) -> Cost:
    """Return the cost of calls and of the run. `chain` holds the artifacts of the run so far."""
    measured: CallCosts = benchmark.metrics["cost"]
    calls = [_with_money(row, prices) for row in measured["calls"]]
    run_cost = _run_cost(chain, measured, prices)
    metrics = benchmark.metrics
    names = dict.fromkeys(name for name in (metrics["winner"], *metrics["winners"].values()) if name)
    by_name = {row["name"]: row for row in calls}
    break_even_rows = [row for name in names for row in _break_even(by_name[name], run_cost, measured, prices)]
    return {**measured, "calls": calls, "prices": prices, "run": run_cost, "break_even": break_even_rows}


def break_even(
    run_cost: Estimate | None, saved: Estimate | None
) -> tuple[BreakEvenAnswer, float | None, float | None, float | None]:
    """Compute the number of calls after which the run has paid for itself.

    Parameters
    ----------
    run_cost
        The cost of the run.
    saved
        What each call saves.

    Returns
    -------
    tuple
        The answer, the number of calls, and its lower and upper bound; None for a bound that does not exist. The lower
        bound assumes the lowest cost of the run and the largest saving.
    """
    if run_cost is None or saved is None:
        return "unknown", None, None, None
    if saved["high"] <= 0:
        return "never", None, None, None
    fewest = run_cost["low"] / saved["high"]
    calls = run_cost["value"] / saved["value"] if saved["value"] > 0 else None
    if saved["low"] <= 0:
        return "perhaps never", calls, fewest, None
    return "after", calls, fewest, run_cost["high"] / saved["low"]


def _break_even(row: CallCost, run_cost: RunCost, measured: CallCosts, prices: Prices | None) -> Iterable[BreakEven]:
    cpu_s = None if run_cost["cpu_s"] is None else _exact(run_cost["cpu_s"])
    yield _row(row["name"], "CPU-seconds", cpu_s, row["saved_cpu_s"])
    if measured["energy"]:
        yield _row(row["name"], "joules", run_cost["joules"], row["saved_joules"])
    if prices:
        yield _row(row["name"], "money", run_cost["money"], row.get("saved_money"))


def _row(name: str, unit: CostUnit, run_cost: Estimate | None, saved: Estimate | None) -> BreakEven:
    answer, calls, low, high = break_even(run_cost, saved)
    return {
        "name": name,
        "unit": unit,
        "run": run_cost and run_cost["value"],
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
        return "never, because a call takes no less than a call of the baseline"
    if answer == "perhaps never":
        return (
            f"perhaps never, at best after {rounded_calls(low)} calls, because the interval of the saving contains zero"
        )
    days = f"{_three_digits(calls / CALLS_PER_DAY)} days" if calls and calls >= CALLS_PER_DAY else "less than a day"
    return f"after {rounded_calls(calls)} calls ({rounded_calls(low)} to {rounded_calls(high)}), {days} at one a second"


def rounded_calls(calls: float | None) -> str:
    """Return a number of calls with three significant digits: 1,230,000."""
    if calls is None:
        return "–"
    return count(float(f"{max(calls, 1):.3g}"))


def _three_digits(value: float) -> str:
    return count(value) if value >= 100 else f"{value:.3g}"


def _run_cost(chain: Sequence[Artifact], measured: CallCosts, prices: Prices | None) -> RunCost:
    """Return the cost of all stages. Their energy is estimated from the joules per CPU-second in the benchmark."""
    cpu_seconds = {artifact.stage: artifact.took.get("cpu_seconds") for artifact in chain}
    unknown = [stage for stage, seconds in cpu_seconds.items() if seconds is None]
    cpu_s = None if unknown else float(sum(seconds for seconds in cpu_seconds.values() if seconds is not None))
    joules = None if cpu_s is None else _energy_estimate(cpu_s, measured["calls"])
    notes = [f"not recorded by the version of edgekit that made: {', '.join(unknown)}"] if unknown else []
    if joules is not None:
        notes.append(
            "its energy is an estimate: its CPU-seconds times the joules per CPU-second of the benchmark's calls"
        )
    if prices and prices["per_kwh"] is not None and not measured["energy"]:
        notes.append(f"the money does not include energy, which is unknown: {measured['energy_unknown']}")
    is_energy_lost = cpu_s is not None and joules is None and measured["energy"] is not None
    if is_energy_lost:
        notes.append(
            "its energy is unknown, because other processes used too much; measure again when the machine is quiet"
        )
    # The price of a call includes its energy.
    is_money_incomplete = is_energy_lost and prices is not None and prices["per_kwh"] is not None
    money = None if cpu_s is None or is_money_incomplete else _money(_exact(cpu_s), joules, prices)
    return {"cpu_s": cpu_s, "unknown": unknown, "joules": joules, "money": money, "notes": notes}


def _energy_estimate(cpu_s: float, calls: Sequence[CallCost]) -> Estimate | None:
    """Estimate the energy of a number of CPU-seconds, in joules.

    The bounds come from the variants that use the least and the most energy per CPU-second.
    """
    pairs = [(row["joules"], row["cpu_s"]["value"]) for row in calls]
    joules_per_cpu_s = sorted(
        joules["value"] / seconds for joules, seconds in pairs if joules is not None and seconds > 0
    )
    if not joules_per_cpu_s or joules_per_cpu_s[0] <= 0:
        return None
    return {
        "value": cpu_s * joules_per_cpu_s[len(joules_per_cpu_s) // 2],
        "low": cpu_s * joules_per_cpu_s[0],
        "high": cpu_s * joules_per_cpu_s[-1],
    }


def _with_money(row: CallCost, prices: Prices | None) -> CallCost:
    priced = {**row}
    if money := _money(row["cpu_s"], row["joules"], prices):
        priced["money"] = money
    if saved := _money(row["saved_cpu_s"], row["saved_joules"], prices):
        priced["saved_money"] = saved
    return cast("CallCost", priced)


def _money(cpu_s: Estimate | None, joules: Estimate | None, prices: Prices | None) -> Estimate | None:
    """Return the price of the known costs. Its bounds are the sums of the bounds of processor time and energy."""
    if prices is None or cpu_s is None:
        return None
    parts = [(cpu_s, prices["per_cpu_hour"], SECONDS_PER_HOUR), (joules, prices["per_kwh"], JOULES_PER_KWH)]
    priced = [(estimate, price / per) for estimate, price, per in parts if estimate is not None and price is not None]
    if not priced:
        return None

    def sum_of(bound: str) -> float:
        return sum(cast("dict[str, float]", estimate)[bound] * price for estimate, price in priced)

    return {"value": sum_of("value"), "low": sum_of("low"), "high": sum_of("high")}


def _exact(value: float) -> Estimate:
    return {"value": value, "low": value, "high": value}


def ancestry(last: Artifact) -> list[Artifact]:
    """Return an artifact and everything it was made from, the origin first."""
    chain = [last]
    while parent := chain[0].parent:
        chain.insert(0, chain[0].ancestor(parent["stage"]))
    return chain


def worth(cost: Cost) -> list[str]:
    """Return sentences about what the run has cost, and after how many calls each variant has paid for it."""
    currency = cost["prices"]["currency"] if cost["prices"] else ""
    run_cost = cost["run"]
    spent = (
        [f"{_three_digits(run_cost['cpu_s'])} CPU-seconds"]
        if run_cost["cpu_s"] is not None
        else ["an unknown number of CPU-seconds"]
    )
    spent += [f"about {_three_digits(run_cost['joules']['value'] / 1000)} kJ"] if run_cost["joules"] else []
    spent += [f"{_three_digits(run_cost['money']['value'])} {currency}"] if run_cost["money"] else []
    sentences = [f"The run has cost {', '.join(spent)}{''.join(f'; {note}' for note in run_cost['notes'])}."]
    if not cost["break_even"]:
        return [*sentences, "No variant ships, so no call saves anything that could pay for the run."]
    for row in cost["break_even"]:
        unit = currency if row["unit"] == "money" else row["unit"]
        sentences.append(f"{row['name']}, in {unit}: {row['text']}.")
    return sentences
