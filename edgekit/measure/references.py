"""References of relative limits: files of others and the baseline's own, timed in the rounds of what they limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.budget import BASELINE, Budget
from edgekit.core.tasks import Task
from edgekit.data.paths import expand_path
from edgekit.models.files import detect, standalone, task_outputs
from edgekit.models.files.interface import Tensors
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training.teachers import model_file

if TYPE_CHECKING:
    from edgekit.data import Data

ASKED_LIMIT_S = 600.0


@dataclass(frozen=True)
class RivalFile:
    """A file as it lies, its steps from a raw sample to its input, and what a call of it needs to know of the data."""

    path: str
    kind: str
    preprocess: list[dict[str, Any]]
    task: Task
    classes: int
    tensors: Tensors

    def call(self, raw: np.ndarray, threads: int = 1) -> Callable[[], object]:
        """One inference of `raw` (1, *sample), as the variants are called."""
        prepared = pipeline(self.preprocess)(raw)
        needed = task_outputs.for_task(self.task, self.classes, prepared.shape[1:])
        opened = standalone.open(Path(self.path), self.kind, prepared.shape[1:], threads, self.tensors, needed)
        return opened.call(prepared)

    @property
    def members(self) -> list[Path]:
        """The file, and where its weights lie in another that one too."""
        return detect.members(Path(self.path), self.kind)


@dataclass(frozen=True)
class References:
    """What is timed beside the files of a round: folders of models to convert as they are, in float, and rivals.

    `raw` (1, *sample) is the sample of the rivals.
    """

    models: Mapping[str, Path] = field(default_factory=dict)
    rivals: Mapping[str, RivalFile] = field(default_factory=dict)
    raw: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def names(self) -> list[str]:
        """Of all."""
        return [*self.models, *self.rivals]


def rivals_of(budget: Budget, targets: Sequence[str], data: Data) -> dict[str, RivalFile]:
    """The files that limits of latency of these targets name, by name; ModelError for one that is gone or no model.

    Each answers a sample in a process of its own first, which a broken one may take with it.
    """
    found = {}
    for name, limit in budget.latency_references(targets).items():
        if name != BASELINE:
            file = model_file.open_file(
                expand_path(limit.file["path"], "benchmark.rivals"), limit.file.get("preprocess") or []
            )
            made = of_data(str(file.path), file.kind, file.preprocess, data)
            model_file.logits(
                file,
                data.calibration.x[:1],
                classes=made.classes,
                timeout_s=ASKED_LIMIT_S,
                threads=1,
                task=made.task,
                tensors=made.tensors,
            )
            found[name] = made
    return found


def of_data(path: str, kind: str, preprocess: list[dict[str, Any]], data: Data) -> RivalFile:
    """A file for samples of these data."""
    return RivalFile(path, kind, preprocess, data.task, len(data.classes), data.tensors or ())


def of(budget: Budget, targets: Sequence[str], data: Data, baseline: Path) -> References:
    """All that limits of these targets are relative to; `baseline` is the folder of its model."""
    models = {BASELINE: baseline} if budget.needs_baseline(targets) else {}
    return References(models, rivals_of(budget, targets, data), np.asarray(data.calibration.x[:1]))
