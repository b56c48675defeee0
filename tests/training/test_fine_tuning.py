"""Fine-tuning follows what distill kept: its loss with its options under its teacher, or the labels alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.models import store
from edgekit.training import losses
from edgekit.training.fine_tuning import tuning
from edgekit.training.teachers.from_artifact import FOLDER, copy_file
from edgekit.training.teachers.model_file import open_file
from tests.stages.quantize.conftest import decided
from tests.training.teachers.test_from_artifact import SPEC

OPTIONS: dict[str, dict[str, Any]] = {
    "soft_targets": {"temperature": 3.0, "alpha": 0.25},
    "dkd": {"temperature": 2.0, "beta": 2.0},
    "dist": {"gamma": 1.0},
    "hints": {"temperature": 5.0, "alpha": 0.5, "weight": 7.0},
}


def distilled(root: Path, kept_options: dict[str, Any] | None, lone_student: bool = True, **teacher: Any) -> Artifact:
    """A baseline, and a distill artifact that kept a student with these options of a loss; None: the lone one."""
    out = artifacts.begin(root / "profile")
    store.save(out / "model", store.build(SPEC, 0), SPEC)
    profile = artifacts.seal(out, stage="profile", source=None, data_digest="0" * 64, config={}, metrics={})
    out = artifacts.begin(root / "distill")
    if "path" in teacher:
        file = open_file(teacher.pop("path"))
        teacher |= {"kind": "file", "file": copy_file(file, out / FOLDER), "preprocess": []}
    decision = decided(kept_options)
    decision["students"] = [row for row in decision["students"] if lone_student or row["options"]]
    artifacts.write_json(out / "decision.json", {**decision, "teacher": {**decision["teacher"], **teacher}})
    return artifacts.seal(out, stage="distill", source=profile, data_digest="0" * 64, config={}, metrics={})


def options_of(name: str) -> dict[str, Any]:
    return losses.parse({"loss": name, **OPTIONS[name]}).model_dump()


def test_every_loss_has_options_here() -> None:
    assert tuple(sorted(OPTIONS)) == losses.NAMES


@pytest.mark.parametrize("name", losses.NAMES)
def test_a_loss_that_was_kept_goes_on_with_its_options_and_its_teacher(name: str, tmp_path: Path) -> None:
    found = tuning(distilled(tmp_path, options_of(name)), store.build(SPEC, 3), SPEC, tmp_path / "answers")
    assert found.distillation is not None and found.distillation.cache_folder == tmp_path / "answers"
    assert found.distillation.loss == losses.parse({"loss": name, **OPTIONS[name]})
    assert isinstance(found.distillation.teacher, torch.nn.Module)
    expected = store.build(SPEC, 0).state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in found.distillation.teacher.state_dict().items())
    assert (found.row["loss"], found.row["options"], found.row["teacher"]) == (name, options_of(name), "baseline")
    assert found.row["reason"] == f"distill chose the student trained with {name}"


def test_where_the_lone_student_was_kept_nobody_teaches(tmp_path: Path) -> None:
    found = tuning(distilled(tmp_path, None), store.build(SPEC, 3), SPEC, tmp_path)
    assert found.distillation is None
    reason = "distill chose the student that was trained on the labels alone"
    assert found.row == {"loss": None, "options": None, "teacher": None, "reason": reason}


@pytest.mark.parametrize("kept_loss", [None, "dkd"])
def test_a_user_may_choose_labels_alone_whatever_was_kept(kept_loss: str | None, tmp_path: Path) -> None:
    made = distilled(tmp_path, options_of(kept_loss) if kept_loss else None)
    found = tuning(made, store.build(SPEC, 3), SPEC, tmp_path, "labels")
    assert found.distillation is None
    assert found.row == {"loss": None, "options": None, "teacher": None, "reason": "tune_with is labels"}


def test_without_a_lone_student_the_loss_that_was_trained_goes_on_and_this_is_reported(tmp_path: Path) -> None:
    made = distilled(tmp_path, options_of("dkd"), lone_student=False)
    found = tuning(made, store.build(SPEC, 3), SPEC, None)
    assert found.distillation is not None and found.row["loss"] == "dkd"
    assert found.row["reason"] == "distill chose the student trained with dkd, and trained none on the labels alone"


def test_a_network_without_maps_of_the_teachers_sizes_learns_its_soft_targets(tmp_path: Path) -> None:
    """With the temperature and weight of hints, and the reason is recorded."""
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    found = tuning(distilled(tmp_path, options_of("hints")), flat, SPEC, None)
    assert found.distillation is not None
    assert found.distillation.loss == losses.parse({"loss": "soft_targets", "temperature": 5.0, "alpha": 0.5})
    assert found.row["loss"] == "soft_targets"
    assert "feature maps are not compared here: Sequential: no layer gives feature maps" in found.row["reason"]


def test_a_teacher_that_is_a_file_goes_on_as_it_was_copied(tmp_path: Path) -> None:
    path = tmp_path / "teacher.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    made = distilled(tmp_path / "run", options_of("dkd"), name="teacher.tflite", path=path)
    found = tuning(made, store.build(SPEC, 3), SPEC, None)
    assert found.distillation is not None and found.row["teacher"] == "teacher.tflite"
    assert found.distillation.teacher.path == made.path / "teacher/teacher.tflite"  # type: ignore[union-attr]
