"""The teacher: every candidate is evaluated on the validation split, and the best is chosen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ModelError
from edgekit.data import Data
from edgekit.data.paths import expand
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.files import task_outputs
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.stages.distill.config import Config, TeacherConfig
from edgekit.training import resume, side_by_side
from edgekit.training.objective import TEACHER_LIMIT_S
from edgekit.training.predict import evaluate, score_samples
from edgekit.training.resume import ResumeFolder
from edgekit.training.side_by_side import Training
from edgekit.training.teacher_cache import training_key
from edgekit.training.teachers import ensemble, model_file
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.from_artifact import ENSEMBLE, FOLDER, copy_file
from edgekit.training.teachers.model_file import TeacherFile


@dataclass(frozen=True)
class Candidate:
    """A teacher with its validation accuracy; `spec` and `cost` are None for a file, which is not inspected.

    `wanted` is None where it is several of them.
    """

    name: str
    wanted: TeacherConfig | None
    model: nn.Module | TeacherFile
    accuracy: float
    spec: store.ModelSpec | None = None
    cost: dict[str, int] | None = None
    history: tuple[dict[str, Any], ...] = ()

    def row(self) -> dict[str, Any]:
        """For the record."""
        return {"name": self.name, "validation_accuracy": self.accuracy, "cost": self.cost}

    def save(self, out: Path) -> dict[str, Any]:
        """Leave it in the artifact `out` unless it is the baseline; what `chosen_teacher` needs to find it."""
        if isinstance(self.model, TeacherFile):
            return {"kind": "file", "file": copy_file(self.model, out / FOLDER), "preprocess": self.model.preprocess}
        if isinstance(self.model, Ensemble):
            ensemble.save(out / FOLDER, self.model)
            return {"kind": ENSEMBLE}
        if self.wanted is None or self.wanted.builder is None:
            return {"kind": "baseline"}
        assert self.spec is not None
        store.save(out / FOLDER, self.model, self.spec)
        return {"kind": "trained here"}


def candidates(source: Artifact, data: Data, config: Config, unfinished: ResumeFolder) -> list[Candidate]:
    """Each teacher of the config, trained where it is to be."""
    baseline, spec = open_model(source)
    found = []
    named = list(enumerate(zip(_names(config.teachers), config.teachers, strict=True)))
    trainings = {
        place: _training(name, place, wanted, data, config, spec.preprocess, unfinished)
        for place, (name, wanted) in named
        if wanted.builder is not None
    }
    if not resume.is_shared():  # who shares them trains each once, and waits for another who does
        side_by_side.ahead(list(trainings.values()), data, unfinished.folder)
    for place, (name, wanted) in progress.each(named, "teacher", lambda item: f"preparing {item[1][0]}"):
        if wanted.path is not None:
            found.append(from_file(name, wanted, data, config.threads))
        elif wanted.builder is not None:
            found.append(_trained(name, wanted, data, trainings[place]))
        elif spec.source:
            file = model_file.open_file(source.path / "model" / spec.source.file, spec.preprocess)
            found.append(_evaluated_file(name, wanted, file, data, config.threads))
        else:
            found.append(_evaluated(name, wanted, baseline, data, spec))
    return found


def _names(wanted: list[TeacherConfig]) -> list[str]:
    """Distinct names: equal ones get their place in the config as well."""
    names = [each.name for each in wanted]
    return [f"{name} (no. {place})" if names.count(name) > 1 else name for place, name in enumerate(names, 1)]


def best(found: list[Candidate]) -> Candidate:
    """The highest validation accuracy; of equals the first."""
    return max(found, key=lambda each: each.accuracy)


def together(found: list[Candidate], data: Data, mean: str) -> Candidate:
    """All of them as one teacher, whose answer is the mean of theirs; ModelError where one is a file."""
    members, specs = [], []
    for each in found:
        if isinstance(each.model, TeacherFile) or each.spec is None:
            raise ModelError(
                f"distill.ensemble: {each.name} is a file; only PyTorch networks teach together: leave it out of "
                "distill.teachers, or write ensemble: none"
            )
        members.append(each.model)
        specs.append(each.spec)
    network = Ensemble(members, specs, mean).eval()
    costs = [each.cost for each in found if each.cost is not None]
    return Candidate(
        f"mean {mean} of {' and '.join(each.name for each in found)}",
        None,
        network,
        evaluate(network, data.validation, specs[0].preprocess, data.task),
        cost={name: sum(each[name] for each in costs) for name in costs[0]},
    )


def _evaluated(
    name: str, wanted: TeacherConfig, module: nn.Module, data: Data, spec: store.ModelSpec, **more: Any
) -> Candidate:
    model_cost = asdict(cost(module, spec.input_shape, spec.takes_ids))
    accuracy = evaluate(module, data.validation, spec.preprocess, data.task)
    return Candidate(name, wanted, module, accuracy, spec, model_cost, **more)


def _training(
    name: str,
    place: int,
    wanted: TeacherConfig,
    data: Data,
    config: Config,
    preprocess: list[dict[str, Any]],
    unfinished: ResumeFolder,
) -> Training:
    assert wanted.builder is not None
    spec = spec_for(data, wanted.builder, wanted.kwargs, preprocess)
    options = wanted.training or config
    how: dict[str, Any] = {name: getattr(config, name) for name in ("seed", "device", "threads", "training")}
    key = training_key(spec, options, data, **how)
    return Training(f"teacher {name}", unfinished.teacher(f"teacher-{place}", key), spec, options, **how)


def _trained(name: str, wanted: TeacherConfig, data: Data, training: Training) -> Candidate:
    with resume.alone(training.checkpoint, name, TEACHER_LIMIT_S):
        module, history = training.fit(data)
    rows = tuple(asdict(epoch) for epoch in history.epochs)
    return _evaluated(name, wanted, module, data, training.spec, history=rows)


def from_file(name: str, wanted: TeacherConfig, data: Data, threads: int) -> Candidate:
    """A teacher that came as a file; ModelError where it knows no class."""
    assert wanted.path is not None
    opened = model_file.open_file(expand(wanted.path, "distill.teachers.path"), wanted.preprocess)
    return _evaluated_file(name, wanted, opened, data, threads)


def _evaluated_file(name: str, wanted: TeacherConfig, opened: TeacherFile, data: Data, threads: int) -> Candidate:
    """The file with its accuracy; ModelError where it knows no class."""
    split, classes = data.validation, len(data.classes)
    found = model_file.logits(
        opened,
        split.x,
        classes=classes,
        timeout_s=TEACHER_LIMIT_S,
        threads=threads,
        task=data.task,
        tensors=data.tensors or (),
    )
    task_outputs.check_answers(f"teacher {name}", found, split.y, data.classes, opened.preprocess, data.task)
    return Candidate(name, wanted, opened, tasks.accuracy(score_samples(found, split, opened.preprocess, data.task)))
