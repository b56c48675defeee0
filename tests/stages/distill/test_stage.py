"""The distill stage on the artifacts of a real run: a fair comparison, and the better network kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.errors import ModelError
from edgekit.data import load
from edgekit.models.from_artifact import open_model
from edgekit.report.sections import distillation
from edgekit.stages.distill import DistillConfig, run
from edgekit.training import losses
from edgekit.training.predict import evaluate
from edgekit.training.teachers.from_artifact import chosen_teacher
from edgekit.training.teachers.model_file import TeacherFile
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun


@pytest.fixture(scope="module")
def sealed(tiny_run: FinishedRun) -> artifacts.Artifact:
    return artifacts.load(tiny_run.folder / "distill")


def test_all_trainings_had_the_same_number_of_epochs(sealed: artifacts.Artifact) -> None:
    history = sealed.metrics["history"]
    assert [row["epoch"] for row in history["alone"]] == [row["epoch"] for row in history["soft_targets"]]
    assert history["alone"] != history["soft_targets"]


def test_the_best_on_validation_is_kept(sealed: artifacts.Artifact) -> None:
    accuracy = sealed.metrics["accuracy"]
    assert accuracy[sealed.metrics["kept"]] == max(accuracy.values())
    module, spec = open_model(sealed)
    data = load(load_plan(TINY).data)
    assert evaluate(module, data.validation, spec.preprocess) == pytest.approx(accuracy[sealed.metrics["kept"]])


def test_gains_are_stated_in_points_and_as_a_share_of_the_gap(sealed: artifacts.Artifact) -> None:
    found = sealed.metrics
    alone, taught = found["students"]
    gain = found["accuracy"]["soft_targets"] - found["accuracy"]["alone"]
    gap = found["teacher"]["validation_accuracy"] - found["accuracy"]["alone"]
    assert (alone["gain_pp"], alone["gap_closed"]) == (0.0, None)
    assert taught["gain_pp"] == pytest.approx(100 * gain)
    assert taught["gap_closed"] == (pytest.approx(gain / gap) if gap > 0 else None)


def test_without_a_lone_student_no_gain_is_stated(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    given = {**load_plan(TINY).stages["distill"].model_dump(), "epochs": 1, "lone_student": False}
    source = artifacts.load(tmp_path / "tiny" / "profile")
    data = load(load_plan(TINY).data).withhold_test()
    made = run(source, data, DistillConfig.model_validate(given), tmp_path / "tiny" / "distill-again")
    found = made.metrics
    [student] = found["students"]
    assert (student["name"], student["gain_pp"], student["gap_closed"]) == ("soft_targets", None, None)
    assert student["kept"] and list(found["history"]) == ["soft_targets"]
    assert found["reason"].endswith("; no student was trained with the labels alone")
    assert distillation.NO_LONE_STUDENT in repr(distillation.table(made))


def test_the_student_is_the_network_of_the_config(sealed: artifacts.Artifact) -> None:
    _, spec = open_model(sealed)
    assert spec.builder == "edgekit.models.ds_cnn:ds_cnn"
    assert sealed.metrics["student_cost"]["macs"] < sealed.metrics["teacher"]["cost"]["macs"]


@pytest.fixture(scope="module")
def several(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> artifacts.Artifact:
    """The stage itself, with two teachers of which one is trained here, and every loss that there is."""
    folder = tmp_path_factory.mktemp("several") / "tiny"
    shutil.copytree(tiny_run.folder, folder)
    plan = load_plan(TINY)
    trained_here = {"builder": "edgekit.models.resnet:resnet", "kwargs": {"depth": 8, "width": 4},
                    "training": {"epochs": 1, "batch_size": 32}}  # fmt: skip
    config = DistillConfig.model_validate(
        {
            **plan.stages["distill"].model_dump(),
            "student": {"builder": "edgekit.models.resnet:resnet8", "kwargs": {"width": 4}},
            "epochs": 1,
            "teachers": [trained_here, {"baseline": True}],
            "losses": [{"loss": name} for name in losses.NAMES],
        }
    )
    return run(artifacts.load(folder / "profile"), load(plan.data).withhold_test(), config, folder / "distill-again")


def test_every_loss_is_tried_and_the_best_is_kept(several: artifacts.Artifact) -> None:
    rows = several.metrics["students"]
    assert [row["name"] for row in rows] == ["alone", *losses.NAMES]
    assert all(len(history) == 1 for history in several.metrics["history"].values())
    [kept] = [row for row in rows if row["kept"]]
    assert kept["validation_accuracy"] == max(row["validation_accuracy"] for row in rows)
    assert len({str(several.metrics["history"][row["name"]]) for row in rows}) == len(rows)


def test_the_best_teacher_teaches_and_each_stands_in_the_record(several: artifacts.Artifact) -> None:
    found = several.metrics
    assert [row["name"] for row in found["teachers"]] == ["resnet(depth=8, width=4)", "baseline"]
    best = max(found["teachers"], key=lambda row: row["validation_accuracy"])
    assert found["teacher"]["name"] == best["name"]
    assert list(found["teacher_history"]) == ["resnet(depth=8, width=4)"]


def test_the_table_has_a_row_for_each_of_them(several: artifacts.Artifact) -> None:
    table = repr(distillation.table(several))
    assert "teaches" in table and "kept" in table
    for name in ("teacher: baseline", "teacher: resnet(depth=8, width=4)", "labels alone", *losses.NAMES):
        assert name in table
    assert distillation.curves_figure(distillation.curves(several), ("teacher", 0.9)).axes


def taught_by_file(run_: FinishedRun, folder: Path, feeding: list[list[dict[str, object]]]) -> artifacts.Artifact:
    """The stage with the baseline's own TFLite file for a teacher, once for each way to feed it."""
    shutil.copytree(run_.folder, folder)
    plan = load_plan(TINY)
    path = str(run_.folder / "convert/baseline-fp32-tflite/model.tflite")
    config = DistillConfig.model_validate(
        {
            **plan.stages["distill"].model_dump(),
            "epochs": 2,
            "teachers": [{"path": path, "preprocess": steps} for steps in feeding],
            "losses": [{"loss": "hints"}, {"loss": "soft_targets"}],
        }
    )
    return run(artifacts.load(folder / "profile"), load(plan.data).withhold_test(), config, folder / "distill")


@pytest.fixture(scope="module")
def by_file(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> artifacts.Artifact:
    return taught_by_file(tiny_run, tmp_path_factory.mktemp("by-file") / "tiny", [load_plan(TINY).run.preprocess])


def test_a_file_teaches_what_the_network_it_was_made_from_teaches(
    by_file: artifacts.Artifact, tiny_run: FinishedRun
) -> None:
    """The same batches in the same order: else the student's losses would not be those under the baseline itself."""
    plan = load_plan(TINY)
    config = DistillConfig.model_validate({**plan.stages["distill"].model_dump(), "epochs": 2})
    source = artifacts.load(by_file.path.parent / "profile")
    itself = run(source, load(plan.data).withhold_test(), config, by_file.path.parent / "distill-by-network")
    for name in ("alone", "soft_targets"):
        there, here = (each.metrics["history"][name] for each in (itself, by_file))
        assert [row["train_loss"] for row in here] == pytest.approx([row["train_loss"] for row in there], rel=1e-3)


def test_of_two_ways_to_feed_a_file_the_one_that_taught_is_recorded(tiny_run: FinishedRun, tmp_path: Path) -> None:
    right = load_plan(TINY).run.preprocess
    darker = [{**right[0], "factor": 0.9 * right[0]["factor"]}, right[1]]
    found = taught_by_file(tiny_run, tmp_path / "tiny", [darker, right])
    rows = found.metrics["teachers"]
    assert [row["name"] for row in rows] == ["model.tflite (no. 1)", "model.tflite (no. 2)"]
    [place] = [place for place, row in enumerate(rows) if row["teaches"]]
    assert rows[place]["validation_accuracy"] == max(row["validation_accuracy"] for row in rows)
    teacher = chosen_teacher(found)
    assert isinstance(teacher, TeacherFile) and teacher.preprocess == [darker, right][place]


def test_losses_that_a_file_cannot_serve_are_skipped_and_reported(by_file: artifacts.Artifact) -> None:
    assert list(by_file.metrics["history"]) == ["alone", "soft_targets"]
    assert "feature maps cannot be read" in by_file.metrics["skipped"]["hints"]
    assert "skipped" in repr(distillation.table(by_file))


def test_a_teacher_that_knows_nothing_is_refused(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    plan = load_plan(TINY)
    path = str(tiny_run.folder / "convert/baseline-fp32-tflite/model.tflite")
    silent = [{"step": "scale", "factor": 1e-9}]
    config = DistillConfig.model_validate(
        {**plan.stages["distill"].model_dump(), "teachers": [{"path": path, "preprocess": silent}]}
    )
    data = load(plan.data).withhold_test()
    with pytest.raises(ModelError, match=r"teacher model\.tflite: .*check its preprocess .* and that its classes"):
        run(artifacts.load(tmp_path / "tiny/profile"), data, config, tmp_path / "tiny/distill")
