"""Candidates in a real run of the stage: timed, trained, chosen, recorded, and the choice replayed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from edgekit.core import artifacts, replay
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import BudgetUnreachable
from edgekit.data import load
from edgekit.measure.latency import TimedFile, TimingResult, convert_models
from edgekit.models.from_artifact import open_model
from edgekit.report import rejected_steps
from edgekit.report.sections import distillation
from edgekit.stages import distill, profile
from edgekit.stages.bundle.provenance import measured_decisions
from edgekit.stages.distill import shortlist
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder
from edgekit.workbook import origin
from edgekit.workbook.plan import Plan, load_plan
from tests.conftest import ROOT

RESNET, DEPTHWISE = "resnet8(width=4)", "ds_cnn(blocks=1, width=8)"
CANDIDATES = [
    {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": 4}},
    {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 8, "blocks": 1}},
]


def plan_in(folder: Path, settings: tuple[str, ...] = (), **options: Any) -> Plan:
    given = yaml.safe_load((ROOT / "tests/configs/smallest.yaml").read_text())
    given["distill"] = {"epochs": 2, "batch_size": 16, "rounds": 10, "calls_per_round": 5, "candidates": CANDIDATES}
    given["distill"] |= options
    given |= {"targets": ["onnx"], "budget": {"accuracy_drop_pp": 100.0, "latency_p50_ms": 1000.0}}
    given["profile"]["epochs"] = 1
    (folder / "run.yaml").write_text(yaml.safe_dump(given))
    return load_plan(folder / "run.yaml", settings)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder up to its baseline."""
    folder = tmp_path_factory.mktemp("candidates")
    plan = plan_in(folder)
    data = load(plan.data).withhold_test()
    first = origin.make_origin(plan, data.digest, folder / "run")
    profile.run(first, data, plan.stages["profile"], folder / "run/profile")  # type: ignore[arg-type]
    return folder / "run"


def distilled(home: Path, folder: Path, replayed: dict[str, Any] | None = None, **options: Any) -> Artifact:
    shutil.copytree(home, folder / "run", ignore=shutil.ignore_patterns("distill", ".training"))
    if replayed is not None:
        replay.write(folder / "run", {"distill": replayed})
    plan = plan_in(folder, **options)
    source = artifacts.load(folder / "run/profile")
    config = plan.stages["distill"]
    assert isinstance(config, distill.DistillConfig)
    return distill.run(source, load(plan.data).withhold_test(), config, folder / "run/distill")


@pytest.fixture(scope="module")
def free(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return distilled(home, tmp_path_factory.mktemp("free"))


def decision(artifact: Artifact) -> dict[str, Any]:
    return dict(json.loads(artifact.file("decision.json").read_text()))


def test_every_candidate_is_recorded_with_its_costs_and_its_outcome(free: Artifact) -> None:
    rows = {row["name"]: row for row in decision(free)["candidates"]}
    assert list(rows) == [RESNET, DEPTHWISE]
    for row in rows.values():
        assert set(row["bytes"]) == {"onnx-fp32", "onnx-int8"}
        assert row["in_time"] and 0 <= row["validation_accuracy"] <= 1
        assert row["kept"] == (row["reason"] == "")
    assert rows[RESNET]["macs"] > rows[DEPTHWISE]["macs"] and rows[RESNET]["parameters"] > rows[DEPTHWISE]["parameters"]
    assert decision(free)["measured"] == {"in_time": [RESNET, DEPTHWISE], "trained": [RESNET, DEPTHWISE]}


def test_the_most_accurate_is_the_student_and_its_lone_training_is_not_done_twice(free: Artifact) -> None:
    rows = decision(free)["candidates"]
    [kept] = [row for row in rows if row["kept"]]
    assert kept["validation_accuracy"] == max(row["validation_accuracy"] for row in rows)
    assert open_model(free)[1].builder == kept["builder"]
    assert free.metrics["accuracy"]["alone"] == kept["validation_accuracy"]
    assert free.metrics["history"]["alone"] == free.metrics["candidate_history"][kept["name"]]


def test_no_figure_of_the_clock_is_content(free: Artifact) -> None:
    assert "_ms" not in json.dumps(decision(free)["candidates"])
    evidence = json.loads(free.file("evidence/candidates.json").read_text())
    assert all(row["p50_ms"] > 0 and len(row["round_p50s_ms"]) == 10 for row in evidence["timed"])


@pytest.fixture
def clock(free: Artifact, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Spares the conversions of the first run: its times and bytes again, `factor` times as slow."""
    evidence = json.loads(free.file("evidence/candidates.json").read_text())["timed"]

    def set_to(factor: float) -> None:
        def measure(models: dict[str, Path], *_: Any, **__: Any) -> TimingResult:
            rows = [
                TimedFile(
                    **{**row, "model": name, **{key: factor * row[key] for key in ("p50_ms", "low_ms", "high_ms")}}
                )
                for name in models
                for row in evidence
                if name.startswith(row["model"] + " ")
            ]
            return TimingResult(rows, [])

        monkeypatch.setattr(shortlist, "time_models", measure)

    return set_to


def test_a_recorded_choice_gives_the_same_content_whatever_the_clock_says(
    free: Artifact, home: Path, tmp_path: Path, clock: Callable[[float], None]
) -> None:
    clock(1e9)
    again = distilled(home, tmp_path, decision(free)["measured"])
    assert again.digest == free.digest
    found = again.metrics["shortlist"]
    assert found["replayed"] and found["today"] == {"in_time": [], "trained": []}
    assert "this measurement would have trained none" in repr(distillation.candidates_table(again))
    assert again.key != free.key


def test_a_candidate_alone_on_the_record_is_the_student_and_trained_once_for_all_epochs(
    home: Path, tmp_path: Path, clock: Callable[[float], None]
) -> None:
    clock(1)
    recorded = {"in_time": [DEPTHWISE], "trained": [DEPTHWISE]}
    found = distilled(home, tmp_path, recorded, candidate_epochs=1)
    assert decision(found)["measured"] == recorded
    resnet, depthwise = decision(found)["candidates"]
    assert depthwise["kept"] and not resnet["in_time"]
    assert resnet["reason"] == "p50 is over 1000 ms on every target"
    assert found.metrics["candidate_history"] == {} and len(found.metrics["history"]["alone"]) == 2
    assert open_model(found)[1].builder == depthwise["builder"]


def test_a_short_selection_is_followed_by_a_full_lone_training(
    home: Path, tmp_path: Path, clock: Callable[[float], None]
) -> None:
    clock(1)
    recorded = {"in_time": [RESNET, DEPTHWISE], "trained": [RESNET, DEPTHWISE]}
    found = distilled(home, tmp_path, recorded, candidate_epochs=1)
    assert {len(rows) for rows in found.metrics["candidate_history"].values()} == {1}
    assert {len(rows) for rows in found.metrics["history"].values()} == {2}


def test_where_nobody_is_within_the_budget_the_fastest_is_named(
    home: Path, tmp_path: Path, clock: Callable[[float], None]
) -> None:
    clock(1e9)
    with pytest.raises(
        BudgetUnreachable, match=r"none is within .*p50 at most 1000 ms.*the fastest is .*onnx"
    ) as raised:
        distilled(home, tmp_path)
    assert raised.value.exit_code == 3
    assert not list(tmp_path.rglob(".training/**/candidates.json")), "a busy hour must not be remembered"
    assert RESNET in str(raised.value) or DEPTHWISE in str(raised.value)


def test_those_not_chosen_stand_among_the_rejected(free: Artifact) -> None:
    empty = {"structured_steps": [], "unstructured_steps": [], "rows": [], "waterfall": [], "method": "ptq"}
    empty |= {"recipes": [], "mixed": [], "left_out": [], "mixed_accuracy": None, "mixed_drop": None}
    empty |= {"qat_accuracy": 0.5, "against_qat": "worse", "qat_drop": {"drop_pp": 0.0, "bound_pp": 0.0}}
    rows = [{**row} for row in free.metrics["candidates"]]
    rows[0] |= {"kept": False, "reason": "p50 is over 1 ms on every target", "samples": None}
    rows[0] |= {"validation_accuracy": None}
    rows[1] |= {"kept": False, "reason": "another is better"}
    given = {**empty, **free.metrics, "candidates": rows}
    config = {"task": "classification", "budget": {"accuracy_confidence": 0.95}}
    chain: Any = SimpleNamespace(metrics=given, config=config)
    chain.ancestor = chain.find_ancestor = lambda stage: chain
    untrained, beaten = [row for row in rejected_steps.rejected_steps(chain) if row["what"].startswith("candidate ")]
    assert (untrained["accuracy_validation"], untrained["drop_pp"], untrained["bound_pp"]) == (None, None, None)
    assert untrained["what"] == f"candidate {RESNET}"
    assert untrained["reason"].startswith("p50 is over 1 ms on every target; untrained ")
    assert beaten["bound_pp"] > beaten["drop_pp"]


def test_a_bundle_records_the_choice_beside_the_winners(free: Artifact, tmp_path: Path) -> None:
    (tmp_path / "decision.json").write_text('{"measured": {"winners": {}, "too_slow": [], "buys_nothing": []}}')
    benchmark: Any = SimpleNamespace(file=lambda name: tmp_path / name)
    last: Any = SimpleNamespace(find_ancestor=lambda stage: {"benchmark": benchmark, "distill": free}.get(stage))
    found = measured_decisions(last)
    assert found == {
        "distill": decision(free)["measured"],
        "benchmark": {"winners": {}, "too_slow": [], "buys_nothing": []},
    }
    replay.write(tmp_path, found)
    assert replay.read(tmp_path, "distill") == decision(free)["measured"]


def test_the_table_and_the_picture_hold_every_one(free: Artifact) -> None:
    table = repr(distillation.candidates_table(free))
    for text in (RESNET, DEPTHWISE, "onnx fp32", "onnx int8", "the student", "budget: p50 1000 ms"):
        assert text in table
    assert distillation.latency_limit_ms(free) == 1000.0
    figure = distillation.candidates_figure(distillation.candidate_points(free), distillation.latency_limit_ms(free))
    assert figure is not None
    [legend] = figure.legends
    names = " ".join(text.get_text() for text in legend.get_texts())
    assert RESNET in names and DEPTHWISE in names and "budget, 1000 ms" in names


def test_candidates_are_timed_beside_a_reference_model_and_the_baseline(home: Path, tmp_path: Path) -> None:
    """Who is timed once is not timed again: the second limit is held to the rounds of the first."""
    plan = plan_in(tmp_path)
    data, steps = load(plan.data).withhold_test(), plan.run.preprocess
    inputs = evaluate.network_inputs(data.calibration.x[:4], steps)
    made, _ = convert_models({"theirs": home / "profile/model"}, inputs, ["onnx"], ["fp32"], tmp_path, 240.0)
    theirs = shutil.copy(made["theirs-fp32-onnx"].paths[0], tmp_path / "theirs.onnx")
    rival = f"benchmark.rivals=[{{path: {theirs}, preprocess: [{{step: scale, factor: 0.004}}]}}]"
    place = ResumeFolder(tmp_path / "place", "key")

    def shortened(ratio: float) -> shortlist.Shortlist:
        limits = f"budget={{latency_p50: {{ratio: {ratio}, of: theirs.onnx}}, size: {{ratio: 50.0, of: baseline}}}}"
        config: Any = plan_in(tmp_path, (rival, limits, "convert.models=[baseline, pruned]")).stages["distill"]
        return shortlist.time_candidates(home / "profile/model", data, steps, config, place, None)

    found = shortened(1000.0)
    assert found.choice["in_time"] == [RESNET, DEPTHWISE]
    assert [(one.model, one.target) for one in found.references] == [("baseline", "onnx"), ("theirs.onnx", "onnx")]
    assert found.references[0].bytes == found.references[1].bytes and set(found.timed) == {RESNET, DEPTHWISE}
    message = r"p50 at most 0.0001 of theirs.onnx's p50; at most 50 of the float baseline.*where theirs.onnx has"
    with pytest.raises(BudgetUnreachable, match=message):
        shortened(0.0001)
