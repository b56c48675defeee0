"""Training objectives: the loss on the labels alone, or a distillation loss with a teacher's outputs."""

from __future__ import annotations

import copy
import tempfile
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
from edgekit.data import memory_map
from edgekit.models.eager import join_outputs
from edgekit.models.features import Features
from edgekit.training import batches, losses
from edgekit.training.losses import LossOptions, Outputs, hints, soft_targets
from edgekit.training.teacher_cache import TeacherCache
from edgekit.training.teachers import model_file
from edgekit.training.teachers.model_file import TeacherFile

if TYPE_CHECKING:
    from edgekit.data import Data

LossFunction = Callable[[Outputs, Outputs, Tensor], Tensor]
TEACHER_LIMIT_S = 24 * 3600.0


@dataclass(frozen=True)
class Distillation:
    """A teacher, and the loss that combines its outputs with the labels.

    The teacher's logits are cached in `cache_folder`, unless it is None. Trainings with the same seed, batch size and
    augmentation see the same batches, so the teacher runs only once on each batch.
    """

    teacher: nn.Module | TeacherFile
    loss: LossOptions = field(default_factory=lambda: soft_targets.Options.model_validate({}))
    cache_folder: Path | None = None


class LabelObjective:
    """The task's own loss (`losses.label_loss`) on the labels. The training loop calls `begin`, `loss` and `end`."""

    def __init__(self, task: Task = "classification", label_smoothing: float = 0.0) -> None:
        self.label_loss = losses.label_loss(task, label_smoothing)
        self.reconstructs = tasks.load_task(task).RECONSTRUCTS

    beside: nn.Module | None = None
    """Additional layers that are trained with the network and discarded afterwards."""

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Prepare an epoch. `random` is the generator that will draw its batches."""

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the scalar loss for inputs x (N, …) and labels y (N, …)."""
        return self.label_loss(join_outputs(module(x)), self.expected(x, y))

    def expected(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the expected outputs: the labels, or the inputs if the task reconstructs them."""
        return x if self.reconstructs else y

    def end(self) -> None:
        """Finish an epoch, after its last batch."""

    def cached_logits(self, rows: int) -> np.ndarray | None:
        """Return the teacher's cached logits for the next `rows` samples of the epoch, or None if they are not cached.

        This is used if other processes compute the loss. Those processes compute the logits that are not cached, which
        are then passed to `take_computed` in the same order.
        """
        return None

    def take_computed(self, logits: np.ndarray) -> None:
        """Take the teacher's logits that another process has computed (see `cached_logits`)."""


class LogitObjective(LabelObjective):
    """Compares logits. Those of the teacher are read from the cache, or computed batch by batch and then cached."""

    def __init__(
        self, compare: LossFunction, teacher: nn.Module, cache: TeacherCache, task: Task = "classification"
    ) -> None:
        super().__init__(task)
        self.compare, self.teacher, self.cache = compare, teacher, cache

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Read the epoch's logits from the cache, if it has them."""
        self.epoch = epoch
        self.cached, self.computed = self.cache.get(epoch), list[np.ndarray]()
        self.position = 0

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """See `LabelObjective.loss`."""
        scores = join_outputs(module(x))
        return self.compare(Outputs(scores), Outputs(self._logits(x)), self.expected(x, y))

    def end(self) -> None:
        """Cache the epoch's logits, if they were computed."""
        if self.computed:
            self.cache.put(self.epoch, np.concatenate(self.computed))

    def cached_logits(self, rows: int) -> np.ndarray | None:
        """See `LabelObjective.cached_logits`."""
        if self.cached is None:
            return None
        self.position += rows
        return self.cached[self.position - rows : self.position]

    def take_computed(self, logits: np.ndarray) -> None:
        """See `LabelObjective.take_computed`."""
        self.computed.append(logits)

    def _logits(self, x: Tensor) -> Tensor:
        if (rows := self.cached_logits(len(x))) is not None:
            return torch.from_numpy(rows).to(x.device)
        with torch.no_grad():
            logits = join_outputs(self.teacher(x))
        self.computed.append(logits.cpu().numpy())
        return logits


class PrecomputedLogits(LogitObjective):
    """Compares logits that a teacher in another process computes for a whole epoch before it begins."""

    def __init__(
        self,
        compare: LossFunction,
        logits: Callable[[np.random.Generator], np.ndarray],
        cache: TeacherCache,
        task: Task = "classification",
    ) -> None:
        super().__init__(compare, nn.Identity(), cache, task)
        self.logits = logits

    def begin(self, epoch: int, random: np.random.Generator) -> None:
        """Read the epoch's logits from the cache, or compute them."""
        super().begin(epoch, random)
        if self.cached is None:
            self.cached = self.logits(copy.deepcopy(random))
            self.cache.put(epoch, self.cached)


class FeatureObjective(LabelObjective):
    """Compares logits, and those feature maps that both networks have in the same size.

    The maps are too large to cache, so the teacher runs on every batch.
    """

    def __init__(
        self,
        compare: LossFunction,
        teacher: nn.Module,
        student_maps: Features,
        teacher_maps: Features,
        task: Task = "classification",
    ) -> None:
        super().__init__(task)
        self.compare, self.teacher, self.student_maps, self.teacher_maps = compare, teacher, student_maps, teacher_maps
        self.beside = self.regressors = hints.build_regressors(*hints.matching_maps(student_maps(), teacher_maps()))

    def loss(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """See `LabelObjective.loss`."""
        scores = join_outputs(module(x))
        with torch.no_grad():
            targets = join_outputs(self.teacher(x))
        student_maps, teacher_maps = hints.matching_maps(self.student_maps(), self.teacher_maps())
        # maps are in bfloat16 if the network computes in it
        predicted = tuple(regress(each.float()) for regress, each in zip(self.regressors, student_maps, strict=True))
        return self.compare(Outputs(scores, predicted), Outputs(targets, teacher_maps), self.expected(x, y))


@contextmanager
def objective(
    distillation: Distillation | None,
    module: nn.Module,
    data: Data,
    preprocess: list[dict[str, Any]],
    options: TrainOptions,
    example: Tensor,
    *,
    seed: int,
    threads: int,
    shards: int = 1,
) -> Iterator[LabelObjective]:
    """Open the objective of a training.

    A teacher network must be on the device of `example`, a network input of shape (1, …). `seed`, `threads` and
    `shards` are part of the key of the teacher's cache. Raises ModelError if the loss compares feature maps and the
    teacher is a file.
    """
    if distillation is None:
        yield LabelObjective(data.task, options.label_smoothing)
        return
    teacher = distillation.teacher
    compare = losses.function(distillation.loss, data.task, options.label_smoothing)
    settings = {"seed": seed, "threads": threads, "device": example.device.type}
    if shards > 1:  # a teacher's last bits depend on how many samples it sees at once
        settings["shares"] = shards
    cache = TeacherCache.open(distillation.cache_folder, teacher, data, preprocess, options, **settings)
    if isinstance(teacher, TeacherFile):
        if losses.needs_features(distillation.loss):
            raise ModelError(
                f"{distillation.loss.loss}: compares feature maps, but the teacher {teacher.path.name} is a file, "
                "of which only the outputs are known; choose a loss that compares logits only, or a PyTorch teacher"
            )
        yield PrecomputedLogits(compare, partial(_epoch_logits, teacher, data, options, threads), cache, data.task)
        return
    teacher.eval()
    if not losses.needs_features(distillation.loss):
        yield LogitObjective(compare, teacher, cache, data.task)
        return
    example_input = tuple(example.shape[1:]), not example.is_floating_point()
    with Features(module, *example_input) as student_maps, Features(teacher, *example_input) as teacher_maps:
        features = FeatureObjective(compare, teacher, student_maps, teacher_maps, data.task)
        features.regressors.to(example.device)
        yield features


def _epoch_logits(
    teacher: TeacherFile, data: Data, options: TrainOptions, threads: int, random: np.random.Generator
) -> np.ndarray:
    """Return the teacher's logits, (n, classes) float32, for all samples of the epoch that `random` will draw."""
    count = sum(part.stop - part.start for part in batches.batch_slices(len(data.train.y), options.batch_size))
    with tempfile.TemporaryDirectory(prefix="edgekit-epoch-") as folder:
        samples = memory_map.stack_parts((raw for raw, _ in batches.epoch(data, options, random)), count, Path(folder))
        return model_file.logits(
            teacher,
            samples,
            classes=len(data.classes),
            timeout_s=TEACHER_LIMIT_S,
            threads=threads,
            task=data.task,
            tensors=data.tensors or (),
        )
