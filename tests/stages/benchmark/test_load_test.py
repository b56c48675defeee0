"""The winners and the baseline under load, on the artifacts of a real run: reported in full, and deciding nothing."""

from __future__ import annotations

import io
import json
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from edgekit.core.artifacts import Artifact
from edgekit.data import load as load_data
from edgekit.measure.load.rate_search import MIN_TRIAL_QUERIES
from edgekit.measure.load.scenarios import SCENARIOS
from edgekit.report.console import print_run
from edgekit.report.result import RESULT
from edgekit.report.sections import loads as loads_section
from edgekit.stages.benchmark import BenchmarkConfig
from edgekit.stages.benchmark.load_test import measure_loads, p99_bound_ms
from edgekit.workbook.config_file import parse_stage
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY, FinishedRun
from tests.stages.benchmark.synthetic import budget

pytestmark = pytest.mark.processes

PLAN = load_plan(TINY)
BASELINE = "baseline-eager"

Row = dict[str, Any]


@pytest.fixture(scope="module")
def benchmark(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The benchmark of a copy of the shared run, driven, which the shared one is not."""
    out = tmp_path_factory.mktemp("driven")
    shutil.copytree(tiny_run.folder, out / "tiny")
    stage = open_stage("benchmark", {"config": str(TINY), "out": str(out), "load_s": 0.2})
    return stage.run()


def config(**options: object) -> BenchmarkConfig:
    return BenchmarkConfig.model_validate({"budget": budget(), **options})


def test_the_bound_is_what_was_asked_for_or_follows_the_budget() -> None:
    assert p99_bound_ms(config(p99_bound_ms=3.0, budget=budget(latency_p50_ms=2.0))) == 3.0
    assert p99_bound_ms(config(budget=budget(latency_p50_ms=2.0))) == 20.0
    assert p99_bound_ms(config()) == 10.0


def test_the_baseline_and_each_winner_are_driven_in_every_scenario(benchmark: Artifact) -> None:
    loads = benchmark.metrics["loads"]
    assert loads["failed"] == [] and loads["loadgen"].startswith("6.")
    names = [BASELINE, *sorted(set(benchmark.metrics["winners"].values()))]
    assert [(row["name"], row["scenario"]) for row in loads["runs"]] == [(n, s) for n in names for s in SCENARIOS]
    for row in loads["runs"]:
        assert row["errors"] == 0 and row["queries"] > 0 and row["peak_bytes"] > 10_000_000
        assert row["short"] and row["why_short"].startswith("0.2 of 600 s")
        assert row["seen"]["seconds"] > row["seconds"] and isinstance(row["disturbed"], list)
        assert (row["rate_per_s"] is not None) == (row["meets"] is not None) == (row["scenario"] == "server")
    assert {row["name"] for row in loads["rates"]} == {BASELINE, benchmark.metrics["winner"]}
    for row in loads["rates"]:
        assert row["trials"] and all(trial["queries"] >= MIN_TRIAL_QUERIES for trial in row["trials"])
        assert all(trial["short"] and trial["seen"] for trial in row["trials"])
        assert row["short"] and row["why_short"].startswith(("0.2 of 600 s", "0.05 of 600 s"))


def test_loads_are_evidence_and_in_no_content(benchmark: Artifact) -> None:
    assert json.loads(benchmark.file("evidence/loads.json").read_text()) == benchmark.metrics["loads"]
    assert "loads" not in benchmark.file("decision.json").read_text()


@pytest.mark.parametrize(("load_s", "winner"), [(0.0, True), (0.2, False)])
def test_nothing_is_driven_without_a_wish_or_a_winner(benchmark: Artifact, load_s: float, winner: bool) -> None:
    name = benchmark.metrics["winner"] if winner else None
    loads = measure_loads(
        benchmark.ancestor("convert"), load_data(PLAN.data), config(load_s=load_s), BASELINE, [], name
    )
    assert (loads["seconds"], loads["loadgen"]) == (0, None), "what the schema calls: nothing was driven"
    assert (loads["runs"], loads["rates"], loads["failed"]) == ([], [], [])
    shown = SimpleNamespace(metrics={"loads": loads}, config={"confidence": 0.99})
    assert "no load test was run" in repr(loads_section.table(shown))  # type: ignore[arg-type]


def test_without_loadgen_nothing_is_driven_and_every_reader_learns_why(
    benchmark: Artifact, tiny_run: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    winner = benchmark.metrics["winner"]
    source, data = benchmark.ancestor("convert"), load_data(PLAN.data)
    found = measure_loads(source, data, config(load_s=0.05), BASELINE, [winner], winner)
    assert (found["seconds"], found["runs"], found["rates"], found["failed"]) == (0, [], [], [])
    assert found["skipped"] and found["skipped"].startswith("LoadGen is not installed")
    table = loads_section.table(SimpleNamespace(metrics={"loads": found}, config={"confidence": 0.99}))  # type: ignore[arg-type]
    assert "no load test was run: LoadGen is not installed" in repr(table)
    result = {**json.loads((tiny_run.folder / RESULT).read_text()), "loads": found}
    section = loads_section.section(result, 0.99)
    assert section and section["grids"] == [] and "LoadGen is not installed" in section["failed"][0]
    text = io.StringIO()
    print_run(result, tiny_run.folder, Console(file=text, width=200))
    assert "no load test was run: LoadGen is not installed" in text.getvalue()


def test_a_load_that_fails_is_reported_and_the_others_go_on(benchmark: Artifact) -> None:
    """A variant whose files are gone, and the baseline, which is there."""
    winner = benchmark.metrics["winner"]
    wishes = config(load_s=0.05, p99_bound_ms=1000.0)  # which an eager network meets on a busy machine too
    loads = measure_loads(benchmark.ancestor("convert"), load_data(PLAN.data), wishes, BASELINE, ["nobody"], winner)
    assert {row["name"] for row in loads["runs"]} == {BASELINE} and loads["seconds"] == 0.05
    assert [row["name"] for row in loads["failed"]] == ["nobody"] and loads["failed"][0]["reason"].startswith("opening")
    shown = SimpleNamespace(metrics={"loads": loads}, config={"confidence": 0.99})
    assert "failed: opening the model" in repr(loads_section.table(shown))  # type: ignore[arg-type]


def test_the_table_says_what_is_short_and_what_is_held(benchmark: Artifact) -> None:
    table = loads_section.table(benchmark)
    assert len(table.rows) == len(benchmark.metrics["loads"]["runs"])
    text = repr(table)
    assert "0.2 of 600 s" in text and "p99 bound 10 ms" in text
    assert text.count("highest rate: ") == len(benchmark.metrics["loads"]["rates"])


def test_the_table_says_what_disturbed_a_run_and_what_a_rate_rests_on(benchmark: Artifact) -> None:
    found = benchmark.metrics["loads"]
    runs = [{**row, "disturbed": ["other processes took 40 % of the processor's time"]} for row in found["runs"]]
    marked = {"disturbed": ["2 of 14 trials, the first by: a neighbour"], "short": True, "why_short": "1 of 600 s"}
    rates = [{**row, **marked, "rate_per_s": 1234.5} for row in found["rates"]]
    shown = SimpleNamespace(metrics={"loads": {**found, "runs": runs, "rates": rates}}, config={"confidence": 0.99})
    text = repr(loads_section.table(shown))  # type: ignore[arg-type]
    assert text.count("; noisy: other processes took 40 % of the processor's time") == len(runs)
    expected = "highest rate: 1,234/s (short: 1 of 600 s; noisy: 2 of 14 trials, the first by: a neighbour)"
    assert text.count(expected) == len(rates)


def test_the_verdict_names_the_rates_and_what_failed(tiny_run: FinishedRun, benchmark: Artifact) -> None:
    result = json.loads((tiny_run.folder / RESULT).read_text())
    rates = [rate(1234.5), {**rate(None), "name": BASELINE, "short": False, "disturbed": ["1 of 2 trials"]}]
    failed = [{"name": "theirs", "reason": "opening the model: gone"}]
    stream = io.StringIO()
    loads = {**benchmark.metrics["loads"], "rates": rates, "failed": failed}
    print_run({**result, "loads": loads}, tiny_run.folder, Console(file=stream, width=200))
    expected = "sustained with a p99 within 10 ms: student-int8-tflite 1,234/s (short: 1 of 600 s), "
    assert f"{expected}{BASELINE} no rate was confirmed, too noisy (noisy: 1 of 2 trials)" in stream.getvalue()
    assert "Load test failed: theirs, opening the model: gone" in stream.getvalue()


def rate(value: float | None) -> Row:
    trials = [
        {"rate_per_s": 100.0, "p99_ms": 4.0, "queries": 100, "meets": True, "reason": "search"},
        {"rate_per_s": 200.0, "p99_ms": 40.0, "queries": 100, "meets": False, "reason": "search"},
    ]
    row = {"name": "student-int8-tflite", "rate_per_s": value, "why": "too noisy", "trials": trials}
    return {**row, "short": True, "why_short": "1 of 600 s", "disturbed": []}


def test_the_figure_can_show_a_search_without_a_trial(benchmark: Artifact) -> None:
    loads = {**benchmark.metrics["loads"], "p99_bound_ms": 12.5, "rates": [{**rate(None), "trials": []}]}
    left, _ = loads_section.figure(loads).axes
    assert [list(line.get_ydata()) for line in left.lines] == [[12.5, 12.5]]


@pytest.mark.parametrize("found_rate", [100.0, None])
def test_the_figure_has_every_trial_the_bound_and_the_rate_that_was_found(
    benchmark: Artifact, found_rate: float | None
) -> None:
    loads = {**benchmark.metrics["loads"], "p99_bound_ms": 12.5, "rates": [rate(found_rate)]}
    left, right = loads_section.figure(loads).axes
    points = [line for line in left.lines if line.get_marker() not in ("", "None", None)]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [(100.0, 4.0), (200.0, 40.0)]
    fills = [line.get_markerfacecolor() for line in points]
    assert fills[0] != "white" and fills[1] == "white"
    assert [list(line.get_ydata()) for line in left.lines if line.get_linestyle() == "--"] == [[12.5, 12.5]]
    held = [line.get_xdata()[0] for line in left.lines if line.get_linestyle() == ":"]
    assert held == ([100.0] if found_rate else [])
    assert any("(short)" in text.get_text() for text in left.texts) is bool(found_rate)
    assert "per second" in left.get_xlabel() and "ms" in left.get_ylabel() and "ms" in right.get_ylabel()


def test_what_is_written_beside_a_rate_stays_inside_the_figure(benchmark: Artifact) -> None:
    slow = [{**rate(one), "trials": [{**rate(one)["trials"][0], "rate_per_s": one}]} for one in (611.0, 10_672.0)]
    left, _ = loads_section.figure({**benchmark.metrics["loads"], "p99_bound_ms": 12.5, "rates": slow}).axes
    left.figure.draw_without_rendering()
    frame = left.get_window_extent()
    for text in left.texts:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1, text.get_text()


def test_the_options_are_checked() -> None:
    shared = {"budget": budget(), "targets": ["onnx"]}
    for option, value in (("load_s", -1.0), ("p99_bound_ms", -0.5)):
        with pytest.raises(Exception, match=f"benchmark.{option}: got {value}"):
            parse_stage("benchmark", {option: value}, shared)
