"""Train a student network with the labels alone, or with a distillation loss and a teacher."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.errors import ModelError
from edgekit.core.hashing import write_json
from edgekit.core.schema.training import Epoch
from edgekit.core.tasks import SampleResults
from edgekit.data import Data
from edgekit.models import dry_run, store
from edgekit.models.user_errors import reporting_failures
from edgekit.stages.distill.config import DistillConfig
from edgekit.stages.distill.teacher import Teacher
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import fit
from edgekit.training.losses import LossOptions
from edgekit.training.objective import Distillation
from edgekit.training.parallel_trainings import Training
from edgekit.training.predict import sample_scores
from edgekit.training.resume import ResumeFolder

LABELS_ALONE = "alone"
CONFIDENCE = 0.95
"""Confidence level of the upper bounds of drops. These bounds are computed, but not recorded here. The level of the
budget is not used for them, because a change of the budget must not cause a new training."""


@dataclass(frozen=True)
class TrainedStudent:
    """A trained student: the name of its loss or "alone", and its per-sample scores on the validation split.

    `stopped` says why the training was stopped early; it is empty if the training was completed.
    """

    name: str
    module: nn.Module
    scores: SampleResults
    history: list[Epoch]
    options: dict[str, Any] | None = None
    stopped: str = ""

    @property
    def accuracy(self) -> float:
        """The accuracy on the validation split, a fraction."""
        return tasks.accuracy(self.scores)

    def drop_below(self, baseline: SampleResults) -> dict[str, Any]:
        """Return the drop below the baseline in percentage points, and the numbers of samples behind it."""
        drop = tasks.drop(baseline, self.scores, CONFIDENCE)
        return {"drop_pp": drop.drop_pp, "lost": drop.lost, "gained": drop.gained, "samples": drop.samples}


def best_so_far(students: Iterable[TrainedStudent]) -> str:
    """Return the highest accuracy for the progress display; empty if there is none yet."""
    return f"{max(accuracies):.2%}" if (accuracies := [student.accuracy for student in students]) else ""


@dataclass(frozen=True)
class StudentTrainer:
    """Trains a network several times from the same initial weights.

    `name` is used for its checkpoints, `title` for messages.
    """

    spec: store.ModelSpec
    data: Data
    config: DistillConfig
    resume_folder: ResumeFolder
    name: str = "student"
    title: str = "student"

    def train_with_labels(self, epochs: int) -> TrainedStudent:
        """Train with the labels alone."""
        return self._train(LABELS_ALONE, epochs, None, None)

    def train_with_loss(self, options: LossOptions, teacher: Teacher, stop_epoch: int | None = None) -> TrainedStudent:
        """Train with a distillation loss for the epochs of the config.

        With `stop_epoch`, training stops after that epoch; a later call continues from there.
        """
        return self._train(options.loss, self.config.epochs, options, teacher, stop_epoch)

    def planned_training(self, options: LossOptions | None, epochs: int, teacher: Teacher | None = None) -> Training:
        """Return the description of a training, so that another process can run it ahead of time."""
        name = options.loss if options else LABELS_ALONE
        return Training(
            f"{self.title}, {name}",
            self._checkpoint(name, epochs),
            self.spec,
            self.config.model_copy(update={"epochs": epochs}),
            self.config.seed,
            self.config.device,
            self.config.threads,
            self.config.training,
            self._distillation(options, teacher),
            teacher.spec if teacher and options else None,
        )

    def _distillation(self, options: LossOptions | None, teacher: Teacher | None) -> Distillation | None:
        return Distillation(teacher.model, options, self.resume_folder.teacher_cache) if teacher and options else None

    def _checkpoint(self, name: str, epochs: int) -> Checkpoint:
        length = "" if epochs == self.config.epochs else f"-{epochs}"
        return self.resume_folder.checkpoint(f"{self.name}-{name}{length}")

    def _train(
        self,
        name: str,
        epochs: int,
        options: LossOptions | None,
        teacher: Teacher | None,
        stop_epoch: int | None = None,
    ) -> TrainedStudent:
        module = dry_run.build_and_check(self.spec, self.config.seed, self.data)
        distillation = self._distillation(options, teacher)
        try:
            training = progress.step(f"training the {self.title} with {_supervision(name)}")
            with training, reporting_failures(self.spec.called, "in training", module):
                history = fit(
                    module,
                    self.data,
                    self.spec.preprocess,
                    self.config.model_copy(update={"epochs": epochs}),
                    seed=self.config.seed,
                    device=self.config.device,
                    threads=self.config.threads,
                    training=self.config.training,
                    pretrained=self.spec.pretrained,
                    distillation=distillation,
                    resume=self._checkpoint(name, epochs),
                    stop_epoch=stop_epoch,
                )
        except ModelError as error:
            raise ModelError(f"{self.title}, {name}: {error}") from error
        scores = sample_scores(module, self.data.validation, self.spec.preprocess, self.data.task)
        rows = [cast("Epoch", asdict(epoch)) for epoch in history.epochs]
        return TrainedStudent(name, module, scores, rows, options.model_dump() if options else None)


STOP_CONFIDENCE = 0.99
"""A loss is stopped only if it is worse than the best one at this confidence level."""
STOPPED_FILE = "stopped-losses.json"


def stop_worse_losses(
    trainer: StudentTrainer, loss_options: Sequence[LossOptions], teacher: Teacher
) -> dict[str, TrainedStudent]:
    """Train with every loss for a part of the epochs, and stop those that are significantly worse than the best.

    Losses are compared by a confidence interval over the same validation samples (`edgekit.core.tasks.accuracy_drop`).
    Trainings that are not stopped continue later and end with exactly the same weights as without the interruption.
    Unlike successive halving (Jamieson & Talwalkar 2016), which always stops half of the trainings, this stops none
    whose loss is not significantly worse.

    Returns the stopped students by the name of their loss; empty if `stop_losses_after` is 0 or there is one loss.
    """
    config = trainer.config
    stop_epoch = math.ceil(config.stop_losses_after * config.epochs)
    if not stop_epoch or stop_epoch >= config.epochs or len(loss_options) < 2:
        return {}
    path = trainer.resume_folder.folder / STOPPED_FILE
    stopped = _read_stopped(path, trainer.resume_folder.key)
    # If an earlier attempt has compared the losses, only the stopped ones are loaded here. The others may have been
    # trained further before the interruption, so they cannot be compared again at the same epoch.
    students: dict[str, TrainedStudent] = {}
    to_train = [options for options in loss_options if stopped is None or options.loss in stopped]
    for options in progress.track(
        to_train,
        "loss",
        lambda _: f"comparing losses after {stop_epoch} epochs",
        best=lambda: best_so_far(students.values()),
    ):
        students[options.loss] = trainer.train_with_loss(options, teacher, stop_epoch)
    if stopped is None:
        stopped = _reasons_to_stop(students, stop_epoch, config.epochs)
        write_json(path, {"key": trainer.resume_folder.key, "stopped": stopped})
    return {loss: replace(students[loss], stopped=reason) for loss, reason in stopped.items()}


def _supervision(name: str) -> str:
    """Describe what a student learns from: the labels alone, or a distillation loss by its name."""
    return "labels alone" if name == LABELS_ALONE else name


def _reasons_to_stop(students: dict[str, TrainedStudent], stop_epoch: int, epochs: int) -> dict[str, str]:
    """Return the reason to stop for each loss that is significantly worse than the best."""
    best = max(students.values(), key=lambda student: student.accuracy)
    reasons = {}
    for loss, student in students.items():
        drop = tasks.drop(student.scores, best.scores, STOP_CONFIDENCE)
        if drop.bound_pp < 0:
            reasons[loss] = (
                f"stopped after {stop_epoch} of {epochs} epochs: {student.accuracy:.2%} there, and {best.name} had "
                f"{best.accuracy:.2%}, at least {-drop.bound_pp:.2f} pp more ({STOP_CONFIDENCE:.0%} confidence, "
                f"{drop.samples} samples)"
            )
    return reasons


def _read_stopped(path: Path, key: str) -> dict[str, str] | None:
    """Return the losses that an earlier attempt at this stage stopped, or None if it did not compare them."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        stopped: dict[str, str] = record["stopped"]
        return stopped if record["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
