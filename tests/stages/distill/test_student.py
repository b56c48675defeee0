"""The distill stage on the artifacts of a real run: a fair comparison, and the better network kept."""

from __future__ import annotations

import pytest

from edgekit import artifact as artifacts
from edgekit.data import load
from edgekit.models.handover import open_model
from edgekit.plan import load_plan
from edgekit.train import evaluate
from tests.conftest import TINY, FinishedRun


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun) -> artifacts.Artifact:
    return artifacts.load(tiny_run.folder / "distill")


def test_both_trainings_had_the_same_budget_of_epochs(sealed: artifacts.Artifact) -> None:
    history = sealed.metrics["history"]
    assert [row["epoch"] for row in history["alone"]] == [row["epoch"] for row in history["distilled"]]
    assert history["alone"] != history["distilled"]


def test_the_better_one_on_validation_is_kept(sealed: artifacts.Artifact) -> None:
    accuracy = sealed.metrics["accuracy"]
    assert accuracy[sealed.metrics["kept"]] == max(accuracy["alone"], accuracy["distilled"])
    module, spec = open_model(sealed)
    data = load(load_plan(TINY).data)
    assert evaluate(module, data.validation, spec.preprocess) == pytest.approx(accuracy[sealed.metrics["kept"]])


def test_the_gain_is_the_difference_in_points(sealed: artifacts.Artifact) -> None:
    found = sealed.metrics
    assert found["gain_pp"] == pytest.approx(100 * (found["accuracy"]["distilled"] - found["accuracy"]["alone"]))


def test_the_student_is_the_network_of_the_config(sealed: artifacts.Artifact) -> None:
    _, spec = open_model(sealed)
    assert spec.builder == "edgekit.models.ds_cnn:ds_cnn"
    assert sealed.metrics["student_cost"]["macs"] < sealed.metrics["teacher_cost"]["macs"]
