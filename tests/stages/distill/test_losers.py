"""Losses that stop early: only significantly worse ones, the same after a kill, with the reason in the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.data import Data
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.stages.distill import DistillConfig, training
from edgekit.stages.distill.config import TeacherConfig
from edgekit.stages.distill.teacher import Teacher
from edgekit.stages.distill.training import StudentTrainer, TrainedStudent
from edgekit.training.fit import fit
from edgekit.training.resume import ResumeFolder
from tests.training.test_fit import SCALE, bars, data_of, same

BUILDER, KWARGS = "edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 1, "stem_stride": 1}
LABELS_ALONE = {"loss": "hints", "alpha": 0.0, "weight": 0.0}
TEACHER_ALONE = {"loss": "soft_targets", "alpha": 1.0}


def config_of(**changes: Any) -> DistillConfig:
    values = {"student": {"builder": BUILDER, "kwargs": KWARGS}, "epochs": 6, "batch_size": 16, "augment": "none",
              "learning_rate": 0.1, "threads": 1, "device": "cpu", "losses": [LABELS_ALONE, TEACHER_ALONE],
              "stop_losses_after": 0.5}  # fmt: skip
    return DistillConfig.model_validate({**values, **changes})


@pytest.fixture(scope="module")
def scene() -> tuple[Data, Teacher]:
    """Pictures, and a teacher that was taught the wrong names."""
    data = data_of(bars, "image", 2)
    wrong = data_of(bars, "image", 2)
    for split in (wrong.train, wrong.validation):
        np.subtract(1, split.y, out=split.y)
    spec = spec_for(data, BUILDER, KWARGS, SCALE)
    module = store.build(spec, seed=1)
    fit(module, wrong, SCALE, config_of(), seed=1, device="cpu", threads=1)
    return data, Teacher("liar", TeacherConfig.model_validate({"baseline": True}), module, 0.0, spec)


def trainer_in(folder: Path, data: Data, **changes: Any) -> StudentTrainer:
    spec = spec_for(data, BUILDER, KWARGS, SCALE)
    return StudentTrainer(spec, data, config_of(**changes), ResumeFolder(folder / ".training" / "distill", "key"))


def ended(trainer: StudentTrainer, teacher: Teacher) -> dict[str, TrainedStudent]:
    return training.stop_worse_losses(trainer, trainer.config.loss_options(), teacher)


def test_a_loss_that_is_significantly_worse_stops_and_its_reason_says_where(
    scene: tuple[Data, Teacher], tmp_path: Path
) -> None:
    found = ended(trainer_in(tmp_path, scene[0]), scene[1])
    assert list(found) == ["soft_targets"]
    student = found["soft_targets"]
    assert [row["epoch"] for row in student.history] == [1, 2, 3]
    assert student.stopped.startswith(f"stopped after 3 of 6 epochs: {student.accuracy:.2%} there, and hints had ")
    assert "99% confidence, 40 samples" in student.stopped


def test_who_goes_on_gets_the_bits_of_a_training_without_the_rule(scene: tuple[Data, Teacher], tmp_path: Path) -> None:
    data, teacher = scene
    trainer = trainer_in(tmp_path / "with", data)
    ended(trainer, teacher)
    options = trainer.config.loss_options()[0]
    gone_on = trainer.train_with_loss(options, teacher)
    whole = trainer_in(tmp_path / "without", data).train_with_loss(options, teacher)
    assert same(gone_on.module, whole.module) and gone_on.history == whole.history


def test_an_attempt_that_was_killed_later_decides_the_same(scene: tuple[Data, Teacher], tmp_path: Path) -> None:
    """What went on has more epochs by then, and would look better beside what stopped."""
    data, teacher = scene
    trainer = trainer_in(tmp_path, data)
    first = ended(trainer, teacher)
    trainer.train_with_loss(trainer.config.loss_options()[0], teacher)
    again = ended(trainer_in(tmp_path, data), teacher)
    assert {name: each.stopped for name, each in again.items()} == {name: each.stopped for name, each in first.items()}
    assert same(again["soft_targets"].module, first["soft_targets"].module)


@pytest.mark.parametrize(
    "changes",
    [{"stop_losses_after": 0.0}, {"losses": [TEACHER_ALONE]}, {"epochs": 1}],
    ids=["no rule", "one loss", "one epoch"],
)
def test_nothing_stops_where_there_is_nothing_to_compare(
    scene: tuple[Data, Teacher], tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert ended(trainer_in(tmp_path, scene[0], **changes), scene[1]) == {}
    assert not list(tmp_path.rglob("*.safetensors"))


def test_doubt_goes_on() -> None:
    """Two samples of forty more are not significant, ten are."""
    answers = {"few": 28, "some": 30, "most": 40}
    tried = {
        name: TrainedStudent(name, torch.nn.Identity(), np.arange(40) < count, []) for name, count in answers.items()
    }
    assert training._reasons_to_stop({name: tried[name] for name in ("few", "some")}, 3, 6) == {}
    assert set(training._reasons_to_stop(tried, 3, 6)) == {"few", "some"}
