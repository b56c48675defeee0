"""One training of a network for the student: by the labels alone, or by a loss under the teacher."""

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
from edgekit.core.tasks import Answered
from edgekit.data import Data
from edgekit.models import dry_run, store
from edgekit.models.user_errors import running
from edgekit.stages.distill.config import Config
from edgekit.stages.distill.teacher import Candidate
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import fit
from edgekit.training.losses import LossOptions
from edgekit.training.objective import Distillation
from edgekit.training.predict import answered
from edgekit.training.resume import ResumeFolder
from edgekit.training.side_by_side import Training

ALONE = "alone"
CONFIDENCE = 0.95
"""Of a bound that is not kept: the budget's own must not be a reason to train again."""


@dataclass(frozen=True)
class Student:
    """One training of the student: the loss's name or "alone", and what it answered of the validation split.

    `stopped` says why it was not trained to its end; empty where it was.
    """

    name: str
    module: nn.Module
    answered: Answered
    history: list[Epoch]
    options: dict[str, Any] | None = None
    stopped: str = ""

    @property
    def accuracy(self) -> float:
        """On validation, a fraction."""
        return tasks.accuracy(self.answered)

    def against(self, baseline: Answered) -> dict[str, Any]:
        """Its drop below the baseline, and what a bound on that is taken from where answers are right or wrong."""
        drop = tasks.drop(baseline, self.answered, CONFIDENCE)
        return {"drop_pp": drop.drop_pp, "lost": drop.lost, "gained": drop.gained, "samples": drop.samples}


def best_so_far(students: Iterable[Student]) -> str:
    """The most accurate training, for progress; empty where there is none yet."""
    return f"{max(accuracies):.2%}" if (accuracies := [student.accuracy for student in students]) else ""


@dataclass(frozen=True)
class Trainer:
    """Trains one network, each time from the same initial weights; `name` is its checkpoints', `title` errors'."""

    spec: store.ModelSpec
    data: Data
    config: Config
    place: ResumeFolder
    name: str = "student"
    title: str = "student"

    def train_with_labels(self, epochs: int) -> Student:
        """By the labels."""
        return self._train(ALONE, epochs, None, None)

    def train_with_loss(self, options: LossOptions, teacher: Candidate, until: int | None = None) -> Student:
        """By the teacher, for as many epochs as the config says; `until` so many of them, and later the rest."""
        return self._train(options.loss, self.config.epochs, options, teacher, until)

    def to_be_made(self, options: LossOptions | None, epochs: int, teacher: Candidate | None = None) -> Training:
        """The same training, to be made ahead of it by another process."""
        name = options.loss if options else ALONE
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

    def _distillation(self, options: LossOptions | None, teacher: Candidate | None) -> Distillation | None:
        return Distillation(teacher.model, options, self.place.teacher_cache) if teacher and options else None

    def _checkpoint(self, name: str, epochs: int) -> Checkpoint:
        length = "" if epochs == self.config.epochs else f"-{epochs}"
        return self.place.checkpoint(f"{self.name}-{name}{length}")

    def _train(
        self,
        name: str,
        epochs: int,
        options: LossOptions | None,
        teacher: Candidate | None,
        until: int | None = None,
    ) -> Student:
        module = dry_run.build(self.spec, self.config.seed, self.data)
        distillation = self._distillation(options, teacher)
        try:
            training = progress.step(f"training the {self.title} with {_supervision(name)}")
            with training, running(self.spec.called, "in training", module):
                history = fit(
                    module,
                    self.data,
                    self.spec.preprocess,
                    self.config.model_copy(update={"epochs": epochs}),
                    seed=self.config.seed,
                    device=self.config.device,
                    threads=self.config.threads,
                    training=self.config.training,
                    distillation=distillation,
                    resume=self._checkpoint(name, epochs),
                    until=until,
                )
        except ModelError as error:
            raise ModelError(f"{self.title}, {name}: {error}") from error
        found = answered(module, self.data.validation, self.spec.preprocess, self.data.task)
        rows = [cast("Epoch", asdict(epoch)) for epoch in history.epochs]
        return Student(name, module, found, rows, options.model_dump() if options else None)


STOP_CONFIDENCE = 0.99
"""That a loss which is stopped is worse there."""
STOPPED_FILE = "stopped-losses.json"


def stopped_students(trainer: Trainer, wanted: Sequence[LossOptions], teacher: Candidate) -> dict[str, Student]:
    """The students that stop, by their loss's name; empty where the config lets none stop, or there is one loss.

    All losses are trained for that part. A loss stops where its accuracy lies below that of the best one, by an
    interval on the same validation samples (`edgekit.core.tasks.accuracy_drop`). The others go on from there, to the
    bits that they would have had anyway. Successive halving (Jamieson & Talwalkar 2016) stops half of them; here doubt
    goes on.
    """
    config = trainer.config
    until = math.ceil(config.stop_losses_after * config.epochs)
    if not until or until >= config.epochs or len(wanted) < 2:
        return {}
    path = trainer.place.folder / STOPPED_FILE
    known = _known(path, trainer.place.key)
    # what stopped earlier has gone no further, what did not may have: it cannot be compared again
    tried: dict[str, Student] = {}
    some = [options for options in wanted if known is None or options.loss in known]
    for options in progress.each(
        some, "loss", lambda _: f"comparing losses after {until} epochs", best=lambda: best_so_far(tried.values())
    ):
        tried[options.loss] = trainer.train_with_loss(options, teacher, until)
    if known is None:
        known = _refused(tried, until, config.epochs)
        write_json(path, {"key": trainer.place.key, "stopped": known})
    return {loss: replace(tried[loss], stopped=reason) for loss, reason in known.items()}


def _supervision(name: str) -> str:
    """What a student learns from, in words: labels alone, or a distillation loss by its name."""
    return "labels alone" if name == ALONE else name


def _refused(tried: dict[str, Student], until: int, epochs: int) -> dict[str, str]:
    """Why each of those stops that are surely worse than the best."""
    best = max(tried.values(), key=lambda student: student.accuracy)
    found = {}
    for loss, student in tried.items():
        behind = tasks.drop(student.answered, best.answered, STOP_CONFIDENCE)
        if behind.bound_pp < 0:
            found[loss] = (
                f"stopped after {until} of {epochs} epochs: {student.accuracy:.2%} there, and {best.name} had "
                f"{best.accuracy:.2%}, at least {-behind.bound_pp:.2f} pp more ({STOP_CONFIDENCE:.0%} sure, "
                f"{behind.samples} samples)"
            )
    return found


def _known(path: Path, key: str) -> dict[str, str] | None:
    """What an earlier attempt at this very stage decided; None where there was none, or it was killed before."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found: dict[str, str] = record["stopped"]
        return found if record["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
