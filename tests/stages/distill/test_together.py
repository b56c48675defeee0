"""The distill stage under all its teachers together, on a sealed baseline of two small epochs."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.errors import ConfigError
from edgekit.data import load
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.report.sections import distillation
from edgekit.stages.distill import DistillConfig, run
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.from_artifact import chosen_teacher
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY

SIBLING = {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 8, "blocks": 1},
           "training": {"epochs": 1, "batch_size": 32, "augmentations": [{"kind": "erase"}]}}  # fmt: skip


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> artifacts.Artifact:
    """The baseline is untrained: nothing here depends on how good it is."""
    plan, folder = load_plan(TINY), tmp_path_factory.mktemp("together")
    data = load(plan.data).withhold_test()
    spec = spec_for(data, plan.run.model.builder, plan.run.model.kwargs, plan.run.preprocess)
    out = artifacts.begin(folder / "profile")
    store.save(out / "model", store.build(spec, 0), spec)
    source = artifacts.seal(out, stage="profile", source=None, data_digest=data.digest, config={}, metrics={})
    config = DistillConfig.model_validate(
        {
            **plan.stages["distill"].model_dump(),
            "epochs": 1,
            "ensemble": "probabilities",
            "teachers": [{"baseline": True}, SIBLING],
            "losses": [{"loss": "soft_targets"}, {"loss": "hints"}],
            "augmentations": [{"kind": "cutmix"}],
            "ema_decay": 0.9,
        }
    )
    return run(source, data, config, folder / "distill")


def test_they_teach_together_and_each_stands_in_the_record(sealed: artifacts.Artifact) -> None:
    rows = sealed.metrics["teachers"]
    name = "mean probabilities of baseline and ds_cnn(blocks=1, width=8)"
    assert [(row["name"], row["teaches"]) for row in rows] == [
        ("baseline", False), ("ds_cnn(blocks=1, width=8)", False), (name, True)
    ]  # fmt: skip
    assert sealed.metrics["teacher"]["name"] == name
    assert rows[2]["cost"]["macs"] == rows[0]["cost"]["macs"] + rows[1]["cost"]["macs"]
    assert f"teacher: {name}" in repr(distillation.table(sealed))


def test_stages_that_fine_tune_find_all_of_them(sealed: artifacts.Artifact) -> None:
    teacher = chosen_teacher(sealed)
    assert isinstance(teacher, Ensemble) and teacher.mean == "probabilities" and len(teacher.members) == 2


def test_a_loss_of_feature_maps_is_skipped_and_reported(sealed: artifacts.Artifact) -> None:
    assert list(sealed.metrics["history"]) == ["alone", "soft_targets"]
    assert "is several networks" in sealed.metrics["skipped"]["hints"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": [{"baseline": True}]}, "distill.ensemble: got logits, and there is one teacher"),
        ({"ensemble": "probabilities", "task": "regression"}, "whose outputs are not probabilities; write logits"),
    ],
)
def test_what_cannot_teach_together_is_refused(changes: dict[str, Any], message: str) -> None:
    plan = load_plan(TINY)
    given = {**plan.stages["distill"].model_dump(), "ensemble": "logits", "teachers": [{"baseline": True}, SIBLING]}
    with pytest.raises(ConfigError) as caught:
        DistillConfig.model_validate({**given, **changes}).check_consistency()
    assert message in str(caught.value)


def test_a_teachers_own_augmentations_are_checked_with_the_config() -> None:
    wrong = {**SIBLING, "training": {"augmentations": [{"kind": "cutmx"}]}}
    plan = load_plan(TINY)
    with pytest.raises(ValueError, match=r"training\.augmentations\.0\.kind: got 'cutmx'; did you mean"):
        DistillConfig.model_validate({**plan.stages["distill"].model_dump(), "teachers": [wrong]})
