"""The golden answers of a bundle: recorded from the variant it holds, clear ones, to a fitting tolerance."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import TARGETS
from edgekit.core.errors import TrustError
from edgekit.data import load as load_data
from edgekit.device.monitor import reference
from edgekit.device.monitor.monitor import Monitor
from edgekit.runner import load
from edgekit.runner.model import Model
from edgekit.stages import bundle as stage
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun) -> Artifact:
    return artifacts.load(tiny_run.folder / "bundles")


@pytest.fixture(scope="module", params=TARGETS)
def model(request: pytest.FixtureRequest, sealed: Artifact) -> Model:
    return load(sealed.path / sealed.metrics["bundles"][request.param]["file"], trial=False)


def test_labels_and_steps_come_from_what_was_sealed(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    described = tmp_path / "tiny/profile/model/model.json"
    described.write_text(described.read_text().replace('"0"', '"zero"'))
    plan = load_plan(TINY)
    source = artifacts.load(tmp_path / "tiny/benchmark")
    with pytest.raises(TrustError, match="model.json: changed or missing"):
        stage.run(source, load_data(plan.data), plan.stages["bundle"], tmp_path / "tiny/.bundle.partial")


def margins(scores: np.ndarray) -> np.ndarray:
    """How far the first place is ahead of the second, (n,)."""
    top = np.sort(scores, axis=1)
    return top[:, -1] - top[:, -2]


def test_the_tolerance_is_that_of_the_precision(model: Model, sealed: Artifact) -> None:
    _, scores = model.golden()
    kind = "int8" if "-int8-" in model.manifest.variant else "float"
    expected = sealed.config[f"golden_tolerance_{kind}"] * np.ptp(scores)
    assert model.manifest.golden["atol"] == pytest.approx(expected)


def test_golden_vectors_are_clear_answers_of_this_very_model(model: Model, sealed: Artifact) -> None:
    inputs, recorded = model.golden()
    assert len(inputs) == sealed.config["golden_samples"]
    again = np.stack([model.execute(model.prepare(raw)) for raw in inputs])
    assert np.array_equal(again, recorded)
    validation = load_data(load_plan(TINY).data).validation
    all_scores = np.stack([model.execute(model.prepare(raw)) for raw in validation.x])
    assert margins(recorded).min() >= np.median(margins(all_scores))


def test_a_bundle_says_what_bounds_its_drop_and_with_which_confidence(model: Model, sealed: Artifact) -> None:
    rows = {row["name"]: row for row in sealed.ancestor("benchmark").metrics["rows"]}
    row = rows[model.manifest.variant]
    assert model.manifest.verdict["drop_validation_pp"] == row["drop_pp"]
    assert model.manifest.verdict["bound_validation_pp"] == row["bound_pp"]
    assert row["bound_pp"] <= model.manifest.budget["accuracy_drop_pp"]
    assert model.manifest.budget["accuracy_confidence"] == row["confidence"] == 0.95


def test_a_bundle_says_what_its_validation_samples_look_like(model: Model) -> None:
    assert model.manifest.reference == reference.MEMBER
    found = reference.read_reference(model.bundle.members[reference.MEMBER], model.manifest)
    validation = load_data(load_plan(TINY).data).validation
    assert found.samples == len(validation.x)
    scores = np.stack([model.execute(model.prepare(raw)) for raw in validation.x])
    counts = np.bincount(scores.argmax(axis=1), minlength=len(model.manifest.labels))
    assert found.classes == dict(zip(model.manifest.labels, counts.tolist(), strict=True))
    watching = Monitor.of(model)
    watching.observe(validation.x, scores)
    assert watching.verdict().level == "healthy"
