"""The prune stage as a whole, on the artifacts of a real run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from edgekit.core import artifacts
from edgekit.core.tasks.accuracy_drop import drop_of_counts
from edgekit.data import load
from edgekit.measure.latency import TimedFile, TimingResult
from edgekit.models.cost import cost
from edgekit.models.from_artifact import open_model
from edgekit.stages.prune import PruneConfig, latency
from edgekit.stages.prune.choice import mark_selected
from edgekit.stages.prune.stage import prune
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.training.predict import evaluate, sample_scores
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun) -> artifacts.Artifact:
    return artifacts.load(tiny_run.folder / "prune")


@pytest.mark.parametrize(("way", "folder"), [("structured", "model"), ("unstructured", "sparse")])
def test_what_is_kept_is_what_the_record_says(sealed: artifacts.Artifact, way: str, folder: str) -> None:
    module, spec = open_model(sealed, folder)
    claimed = sealed.metrics[way]
    data = load(load_plan(TINY).data)
    assert cost(module, spec.input_shape).macs == claimed["macs"]
    assert measured_sparsity(module) == pytest.approx(claimed["sparsity"])
    assert evaluate(module, data.validation, spec.preprocess) == pytest.approx(claimed["validation_accuracy"])


def test_every_step_is_recorded_from_the_student_on(sealed: artifacts.Artifact) -> None:
    for key in ("structured_steps", "unstructured_steps"):
        rows = sealed.metrics[key]
        assert [row["step"] for row in rows] == [0, 1, 2]
        assert sum(row["kept"] for row in rows) == 1
    macs = [row["macs"] for row in sealed.metrics["structured_steps"]]
    assert macs == sorted(macs, reverse=True)
    assert len({row["macs"] for row in sealed.metrics["unstructured_steps"]}) == 1


def test_zeroed_weights_stay_zero_through_fine_tuning(sealed: artifacts.Artifact) -> None:
    for row in sealed.metrics["unstructured_steps"]:
        assert row["sparsity"] == pytest.approx(row["aimed"], abs=0.01)


def test_latencies_are_evidence_and_no_content(
    tiny_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "tiny"))
    source, data = artifacts.load(folder / "distill"), load(load_plan(TINY).data)
    given = {"epochs": 1, "steps": 1, "sparsity_steps": 1, "threads": 1, "targets": ["onnx"]}
    config = PruneConfig.model_validate(given)
    found = []
    for clock in (1.0, 3.0):

        def measure(steps: list[nn.Module], *others: Any, clock: float = clock) -> TimingResult:
            with others[-1]:  # the watch that the stage asks afterwards
                pass
            rounds = tuple(clock + 0.01 * number for number in range(10))
            names = [*(f"step{number}" for number in range(len(steps))), "sparse"]
            return TimingResult(
                [TimedFile(name, "onnx", "fp32", 100, 50, clock, clock, clock, rounds) for name in names], []
            )

        monkeypatch.setattr(latency, "measure", measure)
        found.append(prune(source, data.withhold_test(), config, folder / f".prune.{clock:g}"))
    first, second = found
    assert (first.key, first.digest) == (second.key, second.digest)
    assert first.metrics["latency"] != second.metrics["latency"]
    assert "latency" not in json.loads(first.file("decision.json").read_text())
    evidence = json.loads(second.file("evidence/latency.json").read_text())
    assert {row["model"] for row in evidence["networks"]} == {"step0", "step1", "sparse"}
    assert evidence["sparse_step"] == 1


@pytest.mark.parametrize(
    ("inside", "selected"),
    [((1, 1, 1), 2), ((1, 1, 0), 1), ((1, 0, 1), 2), ((1, 0, 0), 0), ((0, 0, 0), 0)],
)
def test_the_last_step_inside_the_budget_is_kept_or_the_student(inside: tuple[int, ...], selected: int) -> None:
    rows = [
        {"step": step, "inside_budget": bool(good), "reason": "" if good else "too much was lost"}
        for step, good in enumerate(inside)
    ]
    marked = mark_selected(rows)
    assert [row["step"] for row in marked if row["kept"]] == [selected]
    assert all(bool(row["reason"]) != row["kept"] for row in marked)
    assert all(row["reason"] == "too much was lost" for row in marked if row["step"] > selected)


def test_every_step_is_compared_with_the_baselines_answers_to_the_same_samples(sealed: artifacts.Artifact) -> None:
    data = load(load_plan(TINY).data)
    budget = sealed.config["budget"]
    baseline, spec = open_model(sealed.ancestor("profile"))
    reference = sample_scores(baseline, data.validation, spec.preprocess)
    for way, folder in (("structured", "model"), ("unstructured", "sparse")):
        module, _ = open_model(sealed, folder)
        right = sample_scores(module, data.validation, spec.preprocess)
        kept = next(row for row in sealed.metrics[f"{way}_steps"] if row["kept"])
        assert kept["lost"] == sum(reference & ~right)
        assert kept["gained"] == sum(right & ~reference)
        assert kept["samples"] == len(data.validation)
    for row in (row for way in ("structured_steps", "unstructured_steps") for row in sealed.metrics[way]):
        assert row["bound_pp"] == drop_of_counts(row["lost"], row["gained"], row["samples"], 0.95).bound_pp
        assert row["drop_pp"] == pytest.approx(100 * (sealed.metrics["baseline_accuracy"] - row["validation_accuracy"]))
        assert row["inside_budget"] == (row["bound_pp"] <= budget["accuracy_drop_pp"])


def test_too_many_zeros_are_rejected_by_the_stage_itself(
    tiny_run: FinishedRun, sealed: artifacts.Artifact, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "tiny"))
    source, data = artifacts.load(folder / "distill"), load(load_plan(TINY).data).withhold_test()
    greedy = {"sparsity": 0.985, "sparsity_steps": 1, "budget": sealed.config["budget"]}
    config = PruneConfig.model_validate({**greedy, "epochs": 1, "steps": 1, "threads": 1, "measure": False})
    made = prune(source, data, config, folder / ".prune")
    refused = made.metrics["unstructured_steps"][1]
    assert refused["sparsity"] == pytest.approx(0.985, abs=0.01) and not refused["inside_budget"]
    assert made.metrics["unstructured"]["kept_step"] == 0
    assert made.metrics["unstructured"]["reason"].startswith("rejected: no step stayed within")
    assert measured_sparsity(open_model(made, "sparse")[0]) == 0
