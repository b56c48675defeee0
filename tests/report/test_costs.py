"""The number of calls after which a run has paid for itself, and the message if there is none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.schema.cost import Cost, Estimate
from edgekit.core.schema.cost import Cost as Schema
from edgekit.report import costs
from edgekit.report.sections import call_costs
from edgekit.workbook import state
from edgekit.workbook.plan import load_plan
from edgekit.workbook.run import write_result
from tests.conftest import TINY, FinishedRun

EUROS = costs.prices_of({"per_cpu_hour": 0.36, "per_kwh": 0.36, "currency": "EUR"})


def about(value: float, share: float = 0.1) -> Estimate:
    return {"value": value, "low": value * (1 - share), "high": value * (1 + share)}


def artifact(stage: str, metrics: dict[str, Any] | None = None, **took: float) -> Artifact:
    return Artifact(
        path=Path(stage), stage=stage, key="", digest="", parent=None, config={}, metrics=metrics or {}, files={},
        versions={}, data_digest="", code={}, builders={}, replayed=None, took={"seconds": 1.0, **took},
    )  # fmt: skip


def measured(saved_s: Estimate, joules: bool = False) -> dict[str, Any]:
    def row(name: str, cpu_s: float, saved: Estimate | None) -> dict[str, Any]:
        return {
            "name": name,
            "cpu_s": about(cpu_s),
            "saved_cpu_s": saved,
            "joules": about(cpu_s * 10) if joules else None,
            "saved_joules": {end: 10 * value for end, value in saved.items()} if joules and saved else None,  # type: ignore[operator]
            "joules_with_idle": cpu_s * 30 if joules else None,
        }

    return {
        "confidence": 0.99,
        "protocol": "as said",
        "calls": [row("baseline-eager", 0.004, None), row("mine", 0.001, saved_s)],
        "energy": {"source": "a meter", "idle_watts": about(20), "rounds": 10, "seconds": 0.5} if joules else None,
        "energy_unknown": "" if joules else "nothing shows it",
    }


def built(saved_s: Estimate, prices: Any = None, joules: bool = False, won: bool = True, **took: Any) -> Cost:
    winners = {"winner": "mine", "winners": {"onnx": "mine"}} if won else {"winner": None, "winners": {}}
    benchmark = artifact("benchmark", {"cost": measured(saved_s, joules), **winners}, cpu_seconds=200.0)
    chain = [artifact("profile", **{"cpu_seconds": 100.0, **took}), benchmark]
    result = costs.cost_of_run(benchmark, [one for one in chain if one], prices)
    assert result is not None
    TypeAdapter(Schema).validate_python(result)
    return result


def test_the_run_is_paid_for_by_what_its_calls_save() -> None:
    result = built(about(0.003))
    (row,) = result["break_even"]
    assert result["run"]["cpu_s"] == 300
    assert (row["unit"], row["answer"], row["calls"]) == ("CPU-seconds", "after", pytest.approx(100_000))
    assert row["calls_low"] == pytest.approx(300 / 0.0033) and row["calls_high"] == pytest.approx(300 / 0.0027)
    assert row["text"] == "after 100,000 calls (90,900 to 111,000), 1.16 days at one a second"


def test_an_interval_that_holds_zero_promises_nothing() -> None:
    (row,) = built({"value": 0.001, "low": -0.001, "high": 0.003})["break_even"]
    assert row["answer"] == "perhaps never" and row["calls_high"] is None
    assert row["calls_low"] == pytest.approx(100_000)
    assert row["text"].startswith("perhaps never, at best after 100,000 calls")
    (row,) = built({"value": -0.001, "low": -0.003, "high": 0.001})["break_even"]
    assert row["answer"] == "perhaps never" and row["calls"] is None


def test_nothing_saved_is_never_worth_it() -> None:
    (row,) = built({"value": -0.002, "low": -0.003, "high": -0.001})["break_even"]
    assert (row["answer"], row["calls"], row["calls_low"], row["calls_high"]) == ("never", None, None, None)
    assert row["text"] == "never, because a call takes no less than a call of the baseline"


def test_a_stage_that_recorded_nothing_leaves_the_answer_unknown() -> None:
    result = built(about(0.003), EUROS, cpu_seconds=None)
    assert result["run"]["cpu_s"] is None and result["run"]["unknown"] == ["profile"]
    assert {row["answer"] for row in result["break_even"]} == {"unknown"}
    assert "not recorded by the version of edgekit that made: profile" in result["run"]["notes"][0]


def test_nothing_that_ships_has_no_break_even() -> None:
    assert built(about(0.003), won=False)["break_even"] == []


def test_money_is_processor_time_and_energy_at_their_prices() -> None:
    result = built(about(0.003), EUROS, joules=True)
    baseline, mine = result["calls"]
    assert baseline["money"]["value"] == pytest.approx(0.004 * 0.36 / 3600 + 0.04 * 0.36 / 3.6e6)
    assert "saved_money" not in baseline
    assert mine["saved_money"]["low"] == pytest.approx(0.0027 * 1e-4 + 0.027 * 1e-7)
    assert {row["unit"]: row["answer"] for row in result["break_even"]} == {
        "CPU-seconds": "after",
        "joules": "after",
        "money": "after",
    }
    assert result["run"]["joules"] is not None
    assert result["run"]["joules"]["value"] == pytest.approx(3000)
    assert result["run"]["money"] is not None
    assert result["run"]["money"]["value"] == pytest.approx(300 * 1e-4 + 3000 * 1e-7)
    assert any("is an estimate" in note for note in result["run"]["notes"])


def test_money_without_energy_says_so() -> None:
    result = built(about(0.003), EUROS)
    assert result["calls"][1]["money"]["value"] == pytest.approx(0.001 * 1e-4)
    assert "the money does not include energy, which is unknown: nothing shows it" in result["run"]["notes"]
    only_energy = costs.prices_of({"per_kwh": 0.3, "currency": "EUR"})
    result = built(about(0.003), only_energy)
    assert "money" not in result["calls"][1]
    assert {row["unit"]: row["answer"] for row in result["break_even"]}["money"] == "unknown"


def test_energy_that_other_processes_hide_leaves_the_run_s_unknown_and_its_money_too() -> None:
    result = measured(about(0.003), joules=True)
    result["calls"][1]["joules"] = about(-0.5)
    benchmark = artifact(
        "benchmark", {"cost": result, "winner": "mine", "winners": {"onnx": "mine"}}, cpu_seconds=200.0
    )
    cost = costs.cost_of_run(benchmark, [benchmark], EUROS)
    assert cost is not None and cost["run"]["joules"] is None and cost["run"]["money"] is None
    assert any("because other processes used too much" in note for note in cost["run"]["notes"])
    answers = {row["unit"]: row["answer"] for row in cost["break_even"]}
    assert answers == {"CPU-seconds": "after", "joules": "unknown", "money": "unknown"}


def test_a_config_without_prices_has_none() -> None:
    assert costs.prices_of(None) is None and costs.prices_of({"energy_s": 1.0}) is None


def test_a_run_says_what_it_has_cost_and_what_each_call_saves(tiny_run: FinishedRun) -> None:
    result = write_result(load_plan(TINY), tiny_run.folder)
    cost, stages = result["cost"], result["stages"]
    assert cost["run"]["cpu_s"] == pytest.approx(sum(stage["cpu_seconds"] for stage in stages.values()))
    assert all(stages[stage]["cpu_seconds"] > 0 for stage in STAGES)
    assert [row["name"] for row in cost["calls"]] == [row["name"] for row in result["variants"]]
    assert {row["name"] for row in cost["break_even"]} == set(result["winners"].values())
    sealed = artifacts.load(tiny_run.folder / "benchmark")
    assert {"evidence/cost.json", "evidence/cpu_ms.npz"} <= set(sealed.files)
    assert "cost" not in sealed.config
    until_then = call_costs.cost_of(sealed)
    assert until_then["run"]["cpu_s"] == pytest.approx(cost["run"]["cpu_s"] - stages["bundle"]["cpu_seconds"])


def test_a_price_changes_the_result_and_runs_no_stage_again(tiny_run: FinishedRun, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "tiny", ignore=shutil.ignore_patterns(".training")))
    plain = write_result(load_plan(TINY), folder)
    plan = load_plan(TINY, ["benchmark.cost.per_cpu_hour=0.36", "benchmark.cost.currency=EUR"])
    states = list(state.examine_stages(plan, folder, plain["data_digest"]))
    assert [one.state for one in states] == ["done"] * len(STAGES)
    priced = write_result(plan, folder)
    assert priced["bundles"] == plain["bundles"] and priced["stages"] == plain["stages"]
    assert plain["cost"]["prices"] is None and priced["cost"]["prices"] is not None
    mine = priced["cost"]["calls"][1]
    assert mine["money"]["value"] == pytest.approx(mine["cpu_s"]["value"] * 0.36 / 3600)
    assert {row["unit"] for row in priced["cost"]["break_even"]} == {"CPU-seconds", "money"}


def test_the_table_has_a_column_for_what_is_known_and_the_sentences_an_answer_for_each() -> None:
    known, plain = built(about(0.003), EUROS, joules=True), built(about(0.003))
    heads = [column.heading for column in call_costs.columns(known)]
    assert heads == [
        "variant",
        "CPU, ms a call",
        "saved, ms",
        "energy, mJ a call",
        "with idle, mJ",
        "EUR a million calls",
    ]
    assert [column.heading for column in call_costs.columns(plain)] == heads[:3]
    text = costs.worth(known)
    assert text[0].startswith("The run has cost 300 CPU-seconds, about 3 kJ, 0.0303 EUR; its energy is an estimate")
    assert [line.partition(":")[0] for line in text[1:]] == ["mine, in CPU-seconds", "mine, in joules", "mine, in EUR"]
    assert (
        costs.worth(built(about(0.003), won=False))[-1]
        == "No variant ships, so no call saves anything that could pay for the run."
    )


def test_the_figure_is_drawn_where_there_is_an_answer() -> None:
    for saved in (about(0.003), {"value": -0.002, "low": -0.003, "high": -0.001}):
        figure = call_costs.figure(built(saved))  # type: ignore[arg-type]
        assert figure is not None
        labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        assert labels == ["baseline-eager", "mine, the run included"]
    assert call_costs.figure(built(about(0.003), won=False)) is None
    assert call_costs.figure(built(about(0.003), cpu_seconds=None)) is None
