"""The prune stage as a whole, on the artifacts of a real run."""

from __future__ import annotations

import pytest

from edgekit import artifact as artifacts
from edgekit.data import load
from edgekit.models.cost import cost
from edgekit.models.handover import open_model
from edgekit.plan import load_plan
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.stages.prune.walk import mark_kept
from edgekit.train import evaluate
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


@pytest.mark.parametrize(
    ("accuracies", "kept"),
    [((0.9, 0.95, 0.94), 2), ((0.9, 0.95, 0.8), 1), ((0.9, 0.8, 0.95), 2), ((0.9, 0.8, 0.7), 0), ((0.5, 0.8, 0.7), 0)],
)
def test_the_last_step_inside_the_budget_is_kept_or_the_student(accuracies: tuple[float, ...], kept: int) -> None:
    rows = [{"step": step, "validation_accuracy": accuracy} for step, accuracy in enumerate(accuracies)]
    marked = mark_kept(rows, floor=0.9)
    assert [row["step"] for row in marked if row["kept"]] == [kept]
