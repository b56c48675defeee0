"""The models to which relative limits refer: the baseline and files made by others, timed in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.budget import BASELINE, Budget
from edgekit.core.paths import expand_path
from edgekit.core.tasks import Task
from edgekit.models.files import detect, standalone, task_outputs
from edgekit.models.files.interface import Tensors
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training.teachers import model_file

if TYPE_CHECKING:
    from edgekit.data import Data

ANSWER_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class ReferenceFile:
    """A model file made by others, with its preprocessing and the facts needed to call it on samples of a data set."""

    path: str
    kind: str
    preprocess: list[dict[str, Any]]
    task: Task
    classes: int
    tensors: Tensors

    def call(self, raw: np.ndarray, threads: int = 1) -> Callable[[], object]:
        """Return a function that runs one inference of `raw` (1, *sample), in the same way as the variants."""
        prepared = pipeline(self.preprocess)(raw)
        needed = task_outputs.for_task(self.task, self.classes, prepared.shape[1:])
        opened = standalone.open(Path(self.path), self.kind, prepared.shape[1:], threads, self.tensors, needed)
        return opened.call(prepared)

    @property
    def paths(self) -> list[Path]:
        """The file, and the file of its weights if they are stored separately."""
        return detect.members(Path(self.path), self.kind)


@dataclass(frozen=True)
class References:
    """The models that are timed in the same rounds as the variants.

    `models` are folders of networks that are converted in float, by name, and `files` are files made by others, by
    name. `raw` (1, *sample) is the raw sample for the files.
    """

    models: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, ReferenceFile] = field(default_factory=dict)
    raw: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def names(self) -> list[str]:
        """The names of all references."""
        return [*self.models, *self.files]


def open_reference_files(budget: Budget, targets: Sequence[str], data: Data) -> dict[str, ReferenceFile]:
    """Open the files that the latency limits of these targets refer to, by name.

    Each file first answers one sample in a process of its own, because a broken file may crash its process.

    Raises
    ------
    ModelError
        A file is missing, or it is not a model.
    """
    files = {}
    for name, limit in budget.latency_references(targets).items():
        if name != BASELINE:
            file = model_file.open_file(
                expand_path(limit.file["path"], "benchmark.rivals"), limit.file.get("preprocess") or []
            )
            reference = reference_file(str(file.path), file.kind, file.preprocess, data)
            model_file.logits(
                file,
                data.calibration.x[:1],
                classes=reference.classes,
                timeout_s=ANSWER_TIMEOUT_S,
                threads=1,
                task=reference.task,
                tensors=reference.tensors,
            )
            files[name] = reference
    return files


def reference_file(path: str, kind: str, preprocess: list[dict[str, Any]], data: Data) -> ReferenceFile:
    """Describe a model file that will be called on samples of `data`."""
    return ReferenceFile(path, kind, preprocess, data.task, len(data.classes), data.tensors or ())


def references_for(budget: Budget, targets: Sequence[str], data: Data, baseline: Path) -> References:
    """All models that the limits of these targets refer to. `baseline` is the folder of the baseline's model."""
    models = {BASELINE: baseline} if budget.needs_baseline(targets) else {}
    return References(models, open_reference_files(budget, targets, data), np.asarray(data.calibration.x[:1]))
