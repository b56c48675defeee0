"""Several teachers as one: the means, and that it comes back from where it was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from edgekit.core import artifacts
from edgekit.core.errors import TrustError
from edgekit.models import store
from edgekit.training.fine_tuning import feature_maps_obstacle, tuning
from edgekit.training.teacher_cache import teacher_digest
from edgekit.training.teachers import ensemble
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.from_artifact import FOLDER, chosen_teacher
from tests.stages.quantize.conftest import decided
from tests.training.teachers.test_from_artifact import SPEC

SPECS = [SPEC, SPEC.model_copy(update={"kwargs": {"width": 12, "blocks": 1}})]
X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def together(mean: str = "logits", **changes: Any) -> Ensemble:
    specs = [spec.model_copy(update=changes) for spec in SPECS]
    return Ensemble([store.build(spec, seed).eval() for seed, spec in enumerate(SPECS)], specs, mean).eval()


def answers(of: Ensemble) -> list[torch.Tensor]:
    return [member(X) for member in of.members]


def test_the_mean_of_logits() -> None:
    found = together()
    assert torch.allclose(found(X), sum(answers(found)) / 2)


def test_the_mean_of_probabilities_is_that_after_the_softmax() -> None:
    found = together("probabilities")
    expected = sum(each.softmax(1) for each in answers(found)) / 2
    assert torch.allclose(found(X).softmax(1), expected, atol=1e-6)


def test_of_several_labels_it_is_that_of_each() -> None:
    found = together("probabilities", task="multi_label")
    expected = sum(each.sigmoid() for each in answers(found)) / 2
    assert torch.allclose(found(X).sigmoid(), expected, atol=1e-6)


def test_confident_answers_stay_finite() -> None:
    for task in ("classification", "multi_label"):
        found = together("probabilities", task=task)
        with torch.no_grad():
            for member in found.members:
                for parameter in member.parameters():
                    parameter.mul_(1000)
        assert torch.isfinite(found(X)).all()


def test_it_comes_back_from_a_sealed_artifact_and_a_changed_member_is_refused(tmp_path: Path) -> None:
    made = together("probabilities")
    profile = artifacts.begin(tmp_path / "profile")
    store.save(profile / "model", store.build(SPEC, 0), SPEC)
    source = artifacts.seal(profile, stage="profile", source=None, data_digest="0" * 64, config={}, metrics={})
    out = artifacts.begin(tmp_path / "distill")
    ensemble.save(out / FOLDER, made)
    decision = decided({"loss": "soft_targets", "temperature": 4.0, "alpha": 0.9})
    artifacts.write_json(out / "decision.json", {**decision, "teacher": {"name": "both", "kind": "ensemble"}})
    sealed = artifacts.seal(out, stage="distill", source=source, data_digest="0" * 64, config={}, metrics={})
    found = chosen_teacher(sealed)
    assert isinstance(found, Ensemble) and found.specs == made.specs and not found.training
    assert torch.equal(found(X), made(X))
    assert teacher_digest(found) == teacher_digest(made) != teacher_digest(together("logits"))
    tuned = tuning(sealed, store.build(SPEC, 3), SPEC, None)
    assert tuned.distillation is not None and isinstance(tuned.distillation.teacher, Ensemble)
    weights = sealed.path / FOLDER / "2" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(TrustError, match=r"teacher/2/weights\.safetensors"):
        chosen_teacher(artifacts.load(sealed.path))


def test_it_has_no_feature_maps_of_its_own() -> None:
    why = feature_maps_obstacle(together(), "mean logits of a and b", store.build(SPEC, 3), SPEC)
    assert why == "the teacher, the mean logits of a and b, is several networks, and each has feature maps of its own"
