"""One whole run through the command line: notebooks, result, bundles, and what a second run does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.config import STAGES, TARGETS
from edgekit.core.earlier_bundles import EARLIER_BUNDLES
from edgekit.data import load as load_data
from edgekit.device.measure import intervals
from edgekit.report.summary import MAX_LINES
from edgekit.runner import load as load_bundle
from edgekit.runner.bundle import read
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY, FinishedRun, run_edgekit

pytestmark = pytest.mark.processes


@pytest.fixture(scope="session")
def result(tiny_run: FinishedRun) -> dict[str, Any]:
    return json.loads((tiny_run.folder / "result.json").read_text())


def bundles(run: FinishedRun) -> dict[str, Path]:
    decision = json.loads((run.folder / "bundles/decision.json").read_text())
    return {target: run.folder / "bundles" / entry["file"] for target, entry in decision["bundles"].items()}


def test_seven_notebooks_are_executed_without_an_error(tiny_run: FinishedRun) -> None:
    executed = sorted((tiny_run.folder / "notebooks").glob("*.ipynb"))
    assert [path.name for path in executed] == [f"{n:02d}_{stage}.ipynb" for n, stage in enumerate(STAGES, 1)]
    for path in executed:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["execution_count"] for cell in cells)
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert not [output for output in outputs if output["output_type"] == "error"]
        assert not [output for output in outputs if output.get("name") == "stderr"], path.name


def test_every_notebook_shows_a_figure_and_its_checks(tiny_run: FinishedRun) -> None:
    for path in sorted((tiny_run.folder / "notebooks").glob("*.ipynb")):
        outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
        assert [output for output in outputs if "image/png" in output.get("data", {})], path.name
        assert "✓" in "".join("".join(output.get("text", "")) for output in outputs), path.name


def test_the_result_has_every_variants_figures(result: dict[str, Any]) -> None:
    names = {row["name"] for row in result["variants"]}
    expected = {"baseline-eager"}
    for model in ("baseline", "pruned"):
        expected |= {f"{model}-{precision}-tflite" for precision in ("fp32", "fp16", "int8", "w8")}
        expected |= {f"{model}-{precision}-openvino" for precision in ("fp32", "fp16", "int8", "w8")}
        expected |= {f"{model}-{precision}-onnx" for precision in ("fp32", "fp16", "int8")}
    assert names == expected
    for row in result["variants"]:
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert row["throughput_per_s"] > 0
        assert row["bytes"] > 0
        assert 0 <= row["accuracy_test"] <= 1


def test_winners_are_inside_the_budget_and_follow_from_the_recorded_evidence(
    tiny_run: FinishedRun, result: dict[str, Any]
) -> None:
    rows = {row["name"]: row for row in result["variants"]}
    benchmark = tiny_run.folder / "benchmark"
    config = artifacts.load(benchmark).config
    evidence = json.loads((benchmark / "evidence/decisions.json").read_text())
    decisions = {decision["decision"]: decision for decision in evidence}
    assert json.loads((benchmark / "decision.json").read_text())["measured"]["winners"] == result["winners"]
    assert set(result["winners"]) == set(TARGETS)
    for target, winner in result["winners"].items():
        decision = decisions[f"winner of {target}"]
        inside = {name for name, row in rows.items() if row["target"] == target and row["inside_budget"]}
        assert {row["name"] for row in decision["candidates"]} == inside
        tie = {row["name"] for row in decision["candidates"] if row["ratio_low"] <= 1 + config["tie_margin"]}
        assert winner == decision["chosen"] == min(tie, key=lambda name: (rows[name]["bytes"], name))
        assert decision["rule"] == ("fastest" if len(tie) == 1 else "tie: fewest bytes")


def test_the_verdict_and_every_gain_follow_from_the_times_of_the_same_run(
    tiny_run: FinishedRun, result: dict[str, Any]
) -> None:
    rows = {row["name"]: row for row in result["variants"]}
    config = artifacts.load(tiny_run.folder / "benchmark").config
    samples_ms = np.load(tiny_run.folder / "benchmark/evidence/samples_ms.npz")

    def ratio(name: str, to: str) -> list[float]:
        rounds = len(samples_ms[name]) // config["calls_per_round"]
        return list(
            vars(intervals.ratio_interval(samples_ms[name], samples_ms[to], rounds, config["confidence"])).values()
        )

    def with_bounds(record: dict[str, Any], name: str) -> list[float]:
        return [record[name], record[f"{name}_low"], record[f"{name}_high"]]

    verdict = result["verdict"]
    winner, eager = rows[verdict["winner"]], rows["baseline-eager"]
    int8 = [name for name in rows if name.startswith("baseline-int8-")]
    fastest = min(int8, key=lambda name: rows[name]["p50_ms"])
    assert with_bounds(verdict, "speedup_vs_eager") == ratio("baseline-eager", winner["name"])
    assert with_bounds(verdict, "speedup_vs_post_training_baseline") == ratio(fastest, winner["name"])
    assert verdict["drop_test_pp"] == pytest.approx(100 * (eager["accuracy_test"] - winner["accuracy_test"]))
    assert (verdict["drop_validation_pp"], verdict["bound_validation_pp"]) == (winner["drop_pp"], winner["bound_pp"])
    for row in result["variants"][1:]:
        assert with_bounds(row, "speedup") == ratio("baseline-eager", row["name"])
    before = "baseline-eager"
    for step in result["waterfall"][1:]:
        assert with_bounds(step, "gain") == ratio(before, step["variant"])
        before = step["variant"] if step["kept"] else before


def test_the_waterfall_leads_from_the_baseline_to_the_winner(result: dict[str, Any]) -> None:
    steps = result["waterfall"]
    rows = {row["name"]: row for row in result["variants"]}
    assert steps[0]["variant"] == "baseline-eager"
    retained = [step for step in steps if step["kept"]]
    assert retained[-1]["variant"] == result["verdict"]["winner"]
    for step in steps:
        assert step["p50_ms"] == rows[step["variant"]]["p50_ms"]


def test_the_command_ends_with_the_verdict_and_the_paths(tiny_run: FinishedRun, result: dict[str, Any]) -> None:
    lines = tiny_run.stdout.splitlines()
    assert lines[0] == " tiny · 3 of 3 targets ship · budget: accuracy drop ≤ 25 pp"
    assert len(lines) <= MAX_LINES, tiny_run.stdout
    for target, path in bundles(tiny_run).items():
        (line,) = [line for line in lines if line.startswith(f" {target} ")]
        row = next(row for row in result["variants"] if row["name"] == result["winners"][target])
        assert path.name in line and f"{row['accuracy_test']:.2%}".replace("%", "\u00a0%") in line
    shipped = bundles(tiny_run)[result["verdict"]["winner"].rpartition("-")[2]]
    assert lines[-1].startswith(" Next     scp ") and shipped.name in lines[-1]
    assert f" Report   {tiny_run.folder / 'report.html'}" in lines
    for number, stage in enumerate(STAGES, 1):
        assert f"[{number}/7] {stage} · done in " in tiny_run.stderr
    assert "Traceback" not in tiny_run.stderr


def test_status_prints_all_that_the_end_of_the_run_leaves_out(tiny_run: FinishedRun, result: dict[str, Any]) -> None:
    short = run_edgekit("status", str(tiny_run.folder)).stdout
    assert "Result: tiny · 3 of 3 targets ship" in short and f"{tiny_run.folder} --all" in short
    everything = run_edgekit("status", str(tiny_run.folder), "--all").stdout
    names = [row["name"] for row in result["variants"]]
    words = [*names, "Verdict of run tiny", "edgerun.pyz", "result.json", "07_bundle.ipynb", "The run has cost"]
    assert [word for word in words if word not in everything] == []
    for path in bundles(tiny_run).values():
        assert str(path) in everything
    assert everything.endswith("\n".join(tiny_run.stdout.splitlines()[-3:]) + "\n"), "the summary is last here too"


@pytest.mark.parametrize("target", TARGETS)
class TestBundle:
    def test_proves_itself_in_a_fresh_process(self, target: str, tiny_run: FinishedRun) -> None:
        bundle = bundles(tiny_run)[target]
        command = [sys.executable, "-I", str(bundle.parent / "edgerun.pyz"), "selftest", str(bundle), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["top1_agreement"] == 1.0

    def test_is_named_and_recorded_as_designed(
        self, target: str, tiny_run: FinishedRun, result: dict[str, Any]
    ) -> None:
        bundle = bundles(tiny_run)[target]
        assert bundle.name == f"tiny-{target}-1.0.0.edge.zip"
        manifest = read(bundle).manifest
        assert manifest.variant == result["winners"][target]
        assert manifest.verdict["met"] is True
        assert manifest.provenance["data_digest"] == result["data_digest"]
        assert set(manifest.provenance["stages"]) == {"origin", *STAGES[:-1]}
        assert {"README.md", "requirements.txt", "golden/inputs.npy", "golden/outputs.npy"} < set(manifest.members)

    def test_holds_no_latency_and_no_path_of_this_machine(self, target: str, tiny_run: FinishedRun) -> None:
        text = (
            b"".join(read(bundles(tiny_run)[target]).members.values())
            + json.dumps(read(bundles(tiny_run)[target]).manifest.provenance).encode()
        )
        assert str(tiny_run.out).encode() not in text
        assert str(ROOT).encode() not in text
        assert b'p50_ms": 0.' not in text

    def test_gives_the_accuracy_that_the_result_claims(
        self, target: str, tiny_run: FinishedRun, result: dict[str, Any]
    ) -> None:
        data = load_data(load_plan(TINY).data)
        model = load_bundle(bundles(tiny_run)[target], trial=False)  # the interpreter that the claim was measured on
        right = [model.predict(x).index == int(y) for x, y in zip(data.test.x, data.test.y, strict=True)]
        claimed = next(row for row in result["variants"] if row["name"] == result["winners"][target])
        assert sum(right) / len(right) == pytest.approx(claimed["accuracy_test"])


def test_a_budget_that_nothing_meets_is_exit_code_3_with_the_nearest_miss(
    tiny_run: FinishedRun, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    few = ["--set", "convert.models=[baseline]", "--set", "convert.precisions=[fp32,int8]"]
    command = ["run", str(TINY), "--out", str(tmp_path), *few, "--set", "budget.size_bytes=100"]
    done = run_edgekit(*command)
    assert done.returncode == 3, done.stderr
    result = json.loads((tmp_path / "tiny/result.json").read_text())
    nearest = result["nearest_miss"]
    assert nearest["bytes"] == min(row["bytes"] for row in result["variants"][1:])
    missed = f"The nearest miss is {nearest['name']} "
    by = f" {nearest['bytes'] - 100:,} bytes ("
    assert missed in done.stdout and by in done.stdout
    assert "no variant meets the budget, so nothing ships" in done.stdout
    assert len(done.stdout.splitlines()) <= MAX_LINES
    everything = run_edgekit("status", str(tmp_path / "tiny"), "--all").stdout
    assert "06_benchmark.failed.ipynb" in everything and "07_bundle.ipynb" not in everything
    assert "Nothing ships, so the bundles of an earlier run were moved to" in done.stdout
    assert "over 100" in " ".join(done.stdout.split())
    assert result["verdict"] == {"met": False}
    assert result["bundles"] == {}
    assert nearest["reasons"]

    aside, bundled = tmp_path / "tiny" / EARLIER_BUNDLES, tiny_run.folder / "bundles"
    assert not (tmp_path / "tiny/bundles").exists()
    assert artifacts.load(aside).digest == artifacts.load(bundled).digest
    assert f" Earlier  {aside}/ holds the bundles of an earlier run" in done.stdout
    aside.rename(tmp_path / "tiny/bundles")  # as an edgekit that moved nothing left them
    again = run_edgekit(*command)
    assert again.returncode == 3 and aside.is_dir() and not (tmp_path / "tiny/bundles").exists()
    again = run_edgekit(*command)
    assert again.returncode == 3, again.stderr
    assert "Nothing has changed since this run finished" in again.stdout
    assert missed in again.stdout and by in again.stdout
