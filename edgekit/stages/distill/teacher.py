"""Open, train and evaluate the possible teachers, and choose the best on the validation split."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ModelError
from edgekit.core.paths import expand_path
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.files import task_outputs
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.stages.distill.config import DistillConfig, TeacherConfig
from edgekit.training import parallel_trainings, resume
from edgekit.training.objective import TEACHER_LIMIT_S
from edgekit.training.parallel_trainings import Training
from edgekit.training.predict import evaluate, score_samples
from edgekit.training.resume import ResumeFolder
from edgekit.training.teacher_cache import training_key
from edgekit.training.teachers import ensemble, model_file
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.from_artifact import ENSEMBLE, FOLDER, copy_file
from edgekit.training.teachers.model_file import TeacherFile


@dataclass(frozen=True)
class Teacher:
    """A possible teacher with its validation accuracy, a fraction.

    `spec` and `cost` are None for a model file, which is not inspected. `teacher_config` is None for an ensemble.
    """

    name: str
    teacher_config: TeacherConfig | None
    model: nn.Module | TeacherFile
    accuracy: float
    spec: store.ModelSpec | None = None
    cost: dict[str, int] | None = None
    history: tuple[dict[str, Any], ...] = ()

    def row(self) -> dict[str, Any]:
        """Return the record of this teacher for `decision.json`."""
        return {"name": self.name, "validation_accuracy": self.accuracy, "cost": self.cost}

    def save(self, out: Path) -> dict[str, Any]:
        """Save the teacher in the artifact `out`, unless it is the baseline, and return how later stages open it."""
        if isinstance(self.model, TeacherFile):
            return {"kind": "file", "file": copy_file(self.model, out / FOLDER), "preprocess": self.model.preprocess}
        if isinstance(self.model, Ensemble):
            ensemble.save(out / FOLDER, self.model)
            return {"kind": ENSEMBLE}
        if self.teacher_config is None or self.teacher_config.builder is None:
            return {"kind": "baseline"}
        assert self.spec is not None
        store.save(out / FOLDER, self.model, self.spec)
        return {"kind": "trained here"}


def open_teachers(source: Artifact, data: Data, config: DistillConfig, resume_folder: ResumeFolder) -> list[Teacher]:
    """Return all teachers of the config; those with a builder are trained first."""
    baseline, spec = open_model(source)
    teachers = []
    numbered = list(enumerate(zip(_names(config.teachers), config.teachers, strict=True)))
    trainings = {
        number: _training(name, number, teacher_config, data, config, spec.preprocess, resume_folder)
        for number, (name, teacher_config) in numbered
        if teacher_config.builder is not None
    }
    if not resume.is_shared():  # processes with a shared folder train each teacher once and wait for each other
        parallel_trainings.train_in_parallel(list(trainings.values()), data, resume_folder.folder)
    for number, (name, teacher_config) in progress.track(numbered, "teacher", lambda item: f"preparing {item[1][0]}"):
        if teacher_config.path is not None:
            teachers.append(open_teacher_file(name, teacher_config, data, config.threads))
        elif teacher_config.builder is not None:
            teachers.append(_train_teacher(name, teacher_config, data, trainings[number]))
        elif spec.source:
            file = model_file.open_file(source.path / "model" / spec.source.file, spec.preprocess)
            teachers.append(_evaluate_file(name, teacher_config, file, data, config.threads))
        else:
            teachers.append(_evaluate_teacher(name, teacher_config, baseline, data, spec))
    return teachers


def _names(configs: list[TeacherConfig]) -> list[str]:
    """Return distinct names: equal ones are numbered by their position in the config."""
    names = [each.name for each in configs]
    return [f"{name} (no. {number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]


def best_teacher(teachers: list[Teacher]) -> Teacher:
    """Return the teacher with the highest validation accuracy; if several are equal, the first of them."""
    return max(teachers, key=lambda each: each.accuracy)


def join_teachers(teachers: list[Teacher], data: Data, mean: str) -> Teacher:
    """Return the ensemble of all teachers, which averages their outputs. Raises ModelError if one is a file."""
    members, specs = [], []
    for each in teachers:
        if isinstance(each.model, TeacherFile) or each.spec is None:
            raise ModelError(
                f"distill.ensemble: {each.name} is a file; only PyTorch networks teach together: leave it out of "
                "distill.teachers, or write ensemble: none"
            )
        members.append(each.model)
        specs.append(each.spec)
    network = Ensemble(members, specs, mean).eval()
    costs = [each.cost for each in teachers if each.cost is not None]
    return Teacher(
        f"mean {mean} of {' and '.join(each.name for each in teachers)}",
        None,
        network,
        evaluate(network, data.validation, specs[0].preprocess, data.task),
        cost={name: sum(each[name] for each in costs) for name in costs[0]},
    )


def _evaluate_teacher(
    name: str, teacher_config: TeacherConfig, module: nn.Module, data: Data, spec: store.ModelSpec, **fields: Any
) -> Teacher:
    model_cost = asdict(cost(module, spec.input_shape, spec.takes_ids))
    accuracy = evaluate(module, data.validation, spec.preprocess, data.task)
    return Teacher(name, teacher_config, module, accuracy, spec, model_cost, **fields)


def _training(
    name: str,
    number: int,
    teacher_config: TeacherConfig,
    data: Data,
    config: DistillConfig,
    preprocess: list[dict[str, Any]],
    resume_folder: ResumeFolder,
) -> Training:
    assert teacher_config.builder is not None
    spec = spec_for(
        data, teacher_config.builder, teacher_config.kwargs, preprocess, pretrained=teacher_config.pretrained
    )
    options = teacher_config.training or config
    settings: dict[str, Any] = {name: getattr(config, name) for name in ("seed", "device", "threads", "training")}
    key = training_key(spec, options, data, **settings)
    return Training(f"teacher {name}", resume_folder.teacher(f"teacher-{number}", key), spec, options, **settings)


def _train_teacher(name: str, teacher_config: TeacherConfig, data: Data, training: Training) -> Teacher:
    with resume.only_trainer(training.checkpoint, name, TEACHER_LIMIT_S):
        module, history = training.fit(data)
    rows = tuple(asdict(epoch) for epoch in history.epochs)
    return _evaluate_teacher(name, teacher_config, module, data, training.spec, history=rows)


def open_teacher_file(name: str, teacher_config: TeacherConfig, data: Data, threads: int) -> Teacher:
    """Open a teacher from a model file. Raises ModelError if its outputs do not fit the classes of the data."""
    assert teacher_config.path is not None
    file = model_file.open_file(expand_path(teacher_config.path, "distill.teachers.path"), teacher_config.preprocess)
    return _evaluate_file(name, teacher_config, file, data, threads)


def _evaluate_file(name: str, teacher_config: TeacherConfig, file: TeacherFile, data: Data, threads: int) -> Teacher:
    """Evaluate a model file. Raises ModelError if its outputs do not fit the classes of the data."""
    split, classes = data.validation, len(data.classes)
    outputs = model_file.logits(
        file,
        split.x,
        classes=classes,
        timeout_s=TEACHER_LIMIT_S,
        threads=threads,
        task=data.task,
        tensors=data.tensors or (),
    )
    task_outputs.check_answers(f"teacher {name}", outputs, split.y, data.classes, file.preprocess, data.task)
    return Teacher(
        name, teacher_config, file, tasks.accuracy(score_samples(outputs, split, file.preprocess, data.task))
    )
