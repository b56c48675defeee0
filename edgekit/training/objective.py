"""What a network is trained towards: the labels alone, or a teacher's answers as well."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.config import TrainOptions
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.models.features import Features
from edgekit.training import batches, losses
from edgekit.training.losses import LossOptions, Outputs, hints, soft_targets
from edgekit.training.teacher_cache import Answers
from edgekit.training.teachers import model_file as teacher_file
from edgekit.training.teachers.model_file import TeacherFile

if TYPE_CHECKING:
    from edgekit.data import Data

Compare = Callable[[Outputs, Outputs, Tensor], Tensor]
ANSWERS_LIMIT_S = 24 * 3600.0


@dataclass(frozen=True)
class Lesson:
    """Who teaches, and how what is taught is weighed against the labels.

    The teacher's logits are remembered below `answers`, if that is given: trainings with the same seed, batch size and
    augmentation see the same batches, so each batch is answered only once.
    """

    teacher: nn.Module | TeacherFile
    loss: LossOptions = field(default_factory=lambda: soft_targets.Options.model_validate({}))
    answers: Path | None = None


class Labels:
    """The distance to what is wanted, by `losses.hard`; the three calls that a training makes."""

    def __init__(self, task: Task = "classification") -> None:
        self.hard, self.reconstructs = losses.hard(task), tasks.named(task).RECONSTRUCTS

    beside: nn.Module | None = None
    """What is trained with the network and dropped afterwards."""

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Before an epoch's first batch, with the generator that is about to draw its batches."""

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The scalar to minimise for inputs x (N, …) and labels y (N, …)."""
        return self.hard(module(x), self.wanted(x, y))

    def wanted(self, x: Tensor, y: Tensor) -> Tensor:
        """What the network is to say: the labels, or, of a reconstruction, its input."""
        return x if self.reconstructs else y

    def end(self) -> None:
        """After an epoch's last batch."""


class Taught(Labels):
    """A teacher's logits, recalled, or given batch by batch and remembered."""

    def __init__(self, compare: Compare, teacher: nn.Module, answers: Answers, task: Task = "classification") -> None:
        super().__init__(task)
        self.compare, self.teacher, self.answers = compare, teacher, answers

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Recall the epoch, if it was remembered."""
        self.epoch = epoch
        self.known, self.given = self.answers.recall(epoch), list[np.ndarray]()
        self.at = 0

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """See `Labels.loss`."""
        scores = module(x)
        return self.compare(Outputs(scores), Outputs(self._logits(x)), self.wanted(x, y))

    def end(self) -> None:
        """Remember the epoch, if it was not."""
        if self.given:
            self.answers.remember(self.epoch, np.concatenate(self.given))

    def _logits(self, x: Tensor) -> Tensor:
        if self.known is not None:
            rows = self.known[self.at : self.at + len(x)]
            self.at += len(x)
            return torch.from_numpy(rows).to(x.device)
        with torch.no_grad():
            logits: Tensor = self.teacher(x)
        self.given.append(logits.cpu().numpy())
        return logits


class TaughtAhead(Taught):
    """A teacher that answers a whole epoch at once, before it begins: one that runs in a process of its own."""

    def __init__(
        self,
        compare: Compare,
        answer: Callable[[np.random.Generator], np.ndarray],
        answers: Answers,
        task: Task = "classification",
    ) -> None:
        super().__init__(compare, nn.Identity(), answers, task)
        self.answer = answer

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Recall the epoch, or have it answered."""
        super().begin(epoch, random)
        if self.known is None:
            self.known = self.answer(copy.deepcopy(random))
            self.answers.remember(epoch, self.known)


class Hinted(Labels):
    """A teacher whose feature maps count as well, where the student has one of that size; too large to remember."""

    def __init__(
        self,
        compare: Compare,
        teacher: nn.Module,
        learnt: Features,
        shown: Features,
        task: Task = "classification",
    ) -> None:
        super().__init__(task)
        self.compare, self.teacher, self.learnt, self.shown = compare, teacher, learnt, shown
        self.beside = self.regressors = hints.regressors(*hints.paired(learnt(), shown()))

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """See `Labels.loss`."""
        scores = module(x)
        with torch.no_grad():
            taught = self.teacher(x)
        learnt, shown = hints.paired(self.learnt(), self.shown())
        foretold = tuple(regress(each) for regress, each in zip(self.regressors, learnt, strict=True))
        return self.compare(Outputs(scores, foretold), Outputs(taught, shown), self.wanted(x, y))


@contextmanager
def objective(
    lesson: Lesson | None,
    module: nn.Module,
    data: Data,
    preprocess: list[dict[str, Any]],
    options: TrainOptions,
    example: Tensor,
    *,
    seed: int,
    threads: int,
) -> Iterator[Labels]:
    """What `module` is trained towards; a live teacher must be where `example`, one network input (1, …), is.

    `seed` and `threads` decide, with the options, whether remembered answers are those of this training.
    """
    if lesson is None:
        yield Labels(data.task)
        return
    teacher, compare = lesson.teacher, losses.function(lesson.loss, data.task)
    where = {"seed": seed, "threads": threads, "device": example.device.type}
    answers = Answers.of(lesson.answers, teacher, data, preprocess, options, **where)
    if isinstance(teacher, TeacherFile):
        if losses.needs_features(lesson.loss):
            raise ModelError(
                f"{lesson.loss.loss}: compares feature maps, and the teacher {teacher.path.name} is a file, which "
                "shows only its outputs; choose a loss of logits alone or a PyTorch teacher"
            )
        yield TaughtAhead(compare, partial(_ahead, teacher, data, options, threads), answers, data.task)
        return
    teacher.eval()
    if not losses.needs_features(lesson.loss):
        yield Taught(compare, teacher, answers, data.task)
        return
    shape = tuple(example.shape[1:])
    with Features(module, shape) as learnt, Features(teacher, shape) as shown:
        hinted = Hinted(compare, teacher, learnt, shown, data.task)
        hinted.regressors.to(example.device)
        yield hinted


def _ahead(
    teacher: TeacherFile, data: Data, options: TrainOptions, threads: int, random: np.random.Generator
) -> np.ndarray:
    """(n, classes) float32 of all samples of the epoch that `random` is about to draw, in their order."""
    samples = np.concatenate([raw for raw, _ in batches.epoch(data, options, random)])
    classes = len(data.classes)
    return teacher_file.logits(
        teacher, samples, classes=classes, timeout_s=ANSWERS_LIMIT_S, threads=threads, task=data.task
    )
