"""One training of a network for the student: by the labels alone, or by a loss under the teacher."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import nn

from edgekit.data import Data
from edgekit.errors import ModelError
from edgekit.losses import LossOptions
from edgekit.models import store
from edgekit.stages.distill import Config
from edgekit.stages.distill.teacher import Candidate
from edgekit.teaching import Lesson
from edgekit.train import fit, predictions
from edgekit.unfinished import Unfinished

ALONE = "alone"


@dataclass(frozen=True)
class Student:
    """One training of the student: the loss's name or "alone"; `right` (n,) bool over the validation split."""

    name: str
    module: nn.Module
    right: np.ndarray
    history: list[dict[str, Any]]
    options: dict[str, Any] | None = None

    @property
    def accuracy(self) -> float:
        """On validation, a fraction."""
        return float(np.mean(self.right))

    def against(self, baseline_right: np.ndarray) -> dict[str, int]:
        """What a bound on its drop below the baseline is taken from, see `edgekit.paired`."""
        lost, gained = baseline_right & ~self.right, ~baseline_right & self.right
        return {"lost": int(lost.sum()), "gained": int(gained.sum()), "samples": len(self.right)}


@dataclass(frozen=True)
class Trainer:
    """Trains one network, each time from the same initial weights; `name` is its checkpoints', `title` errors'."""

    spec: store.ModelSpec
    data: Data
    config: Config
    place: Unfinished
    name: str = "student"
    title: str = "student"

    def alone(self, epochs: int) -> Student:
        """By the labels."""
        return self._train(ALONE, epochs, None, None)

    def taught(self, options: LossOptions, teacher: Candidate) -> Student:
        """By the teacher, for as many epochs as the config says."""
        return self._train(options.loss, self.config.epochs, options, teacher)

    def _train(self, name: str, epochs: int, options: LossOptions | None, teacher: Candidate | None) -> Student:
        module = store.build(self.spec, seed=self.config.seed)
        lesson = Lesson(teacher.model, options, self.place.answers) if teacher and options else None
        length = "" if epochs == self.config.epochs else f"-{epochs}"
        try:
            history = fit(
                module,
                self.data,
                self.spec.preprocess,
                self.config.model_copy(update={"epochs": epochs}),
                seed=self.config.seed,
                device=self.config.device,
                threads=self.config.threads,
                lesson=lesson,
                resume=self.place.checkpoint(f"{self.name}-{name}{length}"),
            )
        except ModelError as error:
            raise ModelError(f"{self.title}, {name}: {error}") from error
        right = predictions(module, self.data.validation.x, self.spec.preprocess) == self.data.validation.y
        rows = [asdict(epoch) for epoch in history.epochs]
        return Student(name, module, right, rows, options.model_dump() if options else None)
