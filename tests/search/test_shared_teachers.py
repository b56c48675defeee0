"""A teacher is trained once for all trials, and each trial has the same bits as its run alone."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from edgekit.core import lock
from edgekit.core.artifacts import Artifact
from edgekit.search import jobs
from edgekit.training import resume
from tests.conftest import TINY

pytestmark = pytest.mark.processes

TEACHER = {
    "builder": "edgekit.models.ds_cnn:ds_cnn",
    "kwargs": {"width": 16},
    "training": {"epochs": 2, "batch_size": 32, "learning_rate": 0.05, "augment": "none"},
}


def distilled(out: Path, *settings: str, teacher: dict[str, object] = TEACHER) -> Artifact:
    """The distill stage of a trial with these settings."""
    _, built, _ = jobs.run_stages(str(TINY), [f"distill.teachers={json.dumps([teacher])}", *settings], out, "distill")
    return built


def trained(folder: Path) -> dict[str, int]:
    """The teachers in a shared folder, and when each was written last."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.safetensors")}


def test_a_second_student_finds_the_teacher_trained_and_its_answers_kept(tmp_path: Path) -> None:
    shared = tmp_path / "teachers"
    with resume.share_teachers(shared):
        first = distilled(tmp_path / "a")
        before, answers = trained(shared), sorted(shared.glob("answers/*/*"))
        second = distilled(tmp_path / "b", "distill.weight_decay=0.001")
    assert len(before) == 1 and answers
    assert trained(shared) == before and sorted(shared.glob("answers/*/*")) == answers
    assert first.digest != second.digest
    assert distilled(tmp_path / "alone", "distill.weight_decay=0.001").digest == second.digest


@pytest.mark.parametrize(
    ("settings", "teacher"),
    [
        ([], {**TEACHER, "kwargs": {"width": 24}}),
        ([], {**TEACHER, "training": {**TEACHER["training"], "learning_rate": 0.1}}),
        (["seed=5"], TEACHER),
        (["data.limit=200"], TEACHER),
        (["training.precision=bfloat16"], TEACHER),
    ],
)
def test_what_decides_a_teachers_training_makes_it_another(
    tmp_path: Path, settings: list[str], teacher: dict[str, object]
) -> None:
    with resume.share_teachers(tmp_path / "teachers"):
        distilled(tmp_path / "a")
        distilled(tmp_path / "b", *settings, teacher=teacher)
    assert len(trained(tmp_path / "teachers")) == 2


def test_one_trial_waits_while_another_trains_the_teacher(tmp_path: Path) -> None:
    shared = tmp_path / "teachers"
    with resume.share_teachers(shared):
        distilled(tmp_path / "a")
    [name] = trained(shared)
    (shared / name).unlink()

    def later() -> None:
        with resume.share_teachers(shared):
            distilled(tmp_path / "b", "distill.weight_decay=0.001")

    other = threading.Thread(target=later)
    with lock.hold((shared / name).with_suffix(".lock"), "another trial"):
        other.start()
        other.join(5.0)
        assert other.is_alive() and not trained(shared)
    other.join()
    assert list(trained(shared)) == [name]


def test_without_sharing_nothing_is_left_in_the_run(tmp_path: Path) -> None:
    built = distilled(tmp_path / "a")
    assert not list((built.path.parent / resume.FOLDER / "distill").glob("*"))
