"""Fine-tuning in prune and in QAT follows the choice of distill, and the record names the teacher and the loss."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.data import Data, load, parse
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.report.rejected_steps import quantization_rows
from edgekit.report.sections import pruning, quantization
from edgekit.stages import prune, quantize
from edgekit.training import losses
from edgekit.workbook.config_file import stage_config
from tests.stages.quantize.conftest import decided

STEPS = [{"step": "scale", "factor": 1 / 255}]
SHORT: dict[str, dict[str, Any]] = {
    "prune": {"steps": 1, "sparsity_steps": 1, "ratio": 0.25, "measure": False},
    "quantize": {"recipes": ["minmax"], "max_float_layers": 0, "study_sizes": [], "calibration_samples": 8,
                 "sensitivity_samples": 8},
}  # fmt: skip
RECIPE = {"batch_size": 16, "learning_rate": 0.1, "augment": "none"}
"""Of the student's own training."""
BUDGET = {"accuracy_drop_pp": 100.0}  # the last step is kept, whatever the baseline is


@functools.cache
def data() -> Data:
    return load(parse({"source": "digits", "size": 8, "limit": 200, "calibration_samples": 20})).withhold_test()


def tuned(stage: str, root: Path, kept_loss: str | None, teacher: int = 1, **more: Any) -> Artifact:
    """The stage's artifact where distill kept the student of this loss; networks are untrained, `teacher` is a seed."""
    found = None
    options = losses.parse({"loss": kept_loss}).model_dump() if kept_loss else None
    for name in ("profile", "distill", "prune")[: 2 if stage == "prune" else 3]:
        width, seed = (16, teacher) if name == "profile" else (8, 0)
        spec = spec_for(data(), "edgekit.models.ds_cnn:ds_cnn", {"width": width, "blocks": 1}, STEPS)
        out = artifacts.begin(root / name)
        store.save(out / "model", store.build(spec, seed), spec)
        artifacts.write_json(out / "decision.json", decided(options))
        found = artifacts.seal(out, stage=name, source=found, data_digest=data().digest, config=RECIPE, metrics={})
    assert found is not None
    module = {"prune": prune, "quantize": quantize}[stage]
    given = {**SHORT[stage], "epochs": 1, "batch_size": 32, "threads": 1, "budget": BUDGET, **more}
    return module.run(found, data(), stage_config(stage).model_validate(given), root / f".{stage}.partial")


def learnt(artifact: Artifact) -> list[Any]:
    """What came of the fine-tuning."""
    if artifact.stage == "quantize":
        return [json.loads(artifact.file("history.json").read_text())]
    return [artifact.files[f"{folder}/weights.safetensors"] for folder in ("model", "sparse")]


@pytest.mark.parametrize("stage", ["prune", "quantize"])
def test_the_lone_student_is_tuned_by_labels_alone(stage: str, tmp_path: Path) -> None:
    found = tuned(stage, tmp_path / "a", None)
    assert found.metrics["tuning"]["loss"] is None
    assert json.loads(found.file("decision.json").read_text())["tuning"] == found.metrics["tuning"]
    assert learnt(found) == learnt(tuned(stage, tmp_path / "b", None, teacher=7))


@pytest.mark.parametrize("stage", ["prune", "quantize"])
def test_a_taught_student_is_tuned_by_its_loss_under_its_teacher(stage: str, tmp_path: Path) -> None:
    """Of networks that pruning or nncf has changed too, be it logits or feature maps that are compared."""
    made = {name: tuned(stage, tmp_path / str(name), name) for name in (None, *losses.NAMES)}
    for name, found in made.items():
        tuning = found.metrics["tuning"]
        assert tuning["loss"] == name
        assert tuning["options"] == (losses.parse({"loss": name}).model_dump() if name else None)
    assert len({str(learnt(found)) for found in made.values()}) == len(made)
    assert len({found.key for found in made.values()}) == len(made)
    for name in ("soft_targets", "hints"):
        assert learnt(made[name]) != learnt(tuned(stage, tmp_path / f"{name}-other", name, teacher=7))


def test_qat_can_be_switched_off(tmp_path: Path) -> None:
    found = tuned("quantize", tmp_path, None, qat=False)
    decision = json.loads(found.file("decision.json").read_text())
    assert decision["method"] == "ptq"
    assert decision["qat_accuracy"] is decision["qat_drop"] is decision["qat_below_float"] is None
    assert decision["against_qat"] == "not tried: quantize.qat is false"
    assert learnt(found) == [[]]
    assert "QAT int8" not in repr(quantization.table(found))
    assert "fine-tuned" not in repr(quantization.table(found))
    assert all("QAT" not in row["what"] for row in quantization_rows(found.metrics))


def test_labels_alone_may_be_asked_for_whatever_was_kept(tmp_path: Path) -> None:
    """To the bits that the lone student would have had, and as another key."""
    by_labels = tuned("prune", tmp_path / "asked", "soft_targets", tune_with="labels")
    assert by_labels.metrics["tuning"] == {
        "loss": None,
        "options": None,
        "teacher": None,
        "reason": "tune_with is labels",
    }
    assert learnt(by_labels) == learnt(tuned("prune", tmp_path / "alone", None))
    assert by_labels.key != tuned("prune", tmp_path / "taught", "soft_targets").key
    assert "fine-tuned with labels alone: tune_with is labels" in repr(pruning.table(by_labels))


def test_a_shape_from_new_weights_learns_as_the_student_did_whatever_tunes_the_rest(tmp_path: Path) -> None:
    """An untrained teacher is a bad one, so its students are clearly worse than those of the labels."""
    cases = {
        "alone": (None, "distilled"),
        "taught": ("soft_targets", "distilled"),
        "labels": ("soft_targets", "labels"),
    }
    made = {
        name: tuned("prune", tmp_path / name, kept, tune_with=tune_with, from_scratch=True, scratch_epochs=20)
        for name, (kept, tune_with) in cases.items()
    }
    found = {name: each.metrics["from_scratch"]["validation_accuracy"] for name, each in made.items()}
    assert found["labels"] == found["taught"] < found["alone"] - 0.2
    sparse = {name: learnt(each)[1] for name, each in made.items()}
    assert sparse["labels"] == sparse["alone"] != sparse["taught"], "the fine-tuning follows tune_with"
