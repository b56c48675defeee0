"""The job that a worker process gets in order to compute shards: the network, its teacher and the loss."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.core.tasks import Task
from edgekit.models import memory_layout
from edgekit.models.features import Features
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.training import losses
from edgekit.training.data_parallel.learner import ShardLearner
from edgekit.training.losses import LossOptions
from edgekit.training.objective import FeatureObjective, LabelObjective, LogitObjective
from edgekit.training.predict import to_input
from edgekit.training.teacher_cache import TeacherCache
from edgekit.training.torch_settings import computing_in, reproducible

MAIN_MODULE_PREFIX = b"c__main__\n"
"""The bytes with which pickle begins a name that is defined in the module with which this process was started."""


@dataclass(frozen=True)
class Job:
    """The job of the worker processes. It must be made before any hooks are registered in the networks.

    `teacher` is None if there is none, or if process 0 has the teacher's logits. `example` is one preprocessed sample
    of shape (1, *input), and `threads` is the number of threads for a shard.
    """

    module: nn.Module
    teacher: nn.Module | None
    loss: LossOptions | None
    task: Task
    example: np.ndarray
    device: str
    threads: int
    precision: str = "float32"
    label_smoothing: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the job as bytes. Raises any exception of pickle if a class cannot be imported elsewhere."""
        trained_names = {name for name, each in self.module.named_parameters() if each.requires_grad}
        content = io.BytesIO()
        torch.save((replace(self, module=_parts(self.module)), trained_names), content)
        if MAIN_MODULE_PREFIX in content.getvalue():
            raise TypeError("a part of it is defined in __main__, which is another module in other processes")
        return content.getvalue()

    @classmethod
    def read(cls, content: bytes) -> Job:
        """Read the job that process 0 wrote."""
        stored, trained_names = torch.load(io.BytesIO(content), weights_only=False)
        module = stored.module if isinstance(stored.module, nn.Module) else stored.module.rebuild()
        for name, each in module.named_parameters():
            each.requires_grad_(name in trained_names)
        job: Job = replace(stored, module=module)
        return job


def _parts(module: nn.Module) -> Any:
    """Return the parts of a quantized network, or the module itself. This does not import nncf, which is large."""
    quantized = sys.modules.get("edgekit.models.quantized")
    if quantized and isinstance(module, quantized.Quantizable):
        return quantized.QuantizedParts.from_network(module)
    return module


@contextmanager
def open_learner(job: Job, rank: int) -> Iterator[ShardLearner]:
    """Yield the learner of a worker process, set up as in process 0: device, memory layout, objective and threads."""
    device = torch.device(job.device, rank % torch.cuda.device_count()) if job.device == "cuda" else (
        torch.device(job.device))  # fmt: skip
    networks = [job.module, *([job.teacher] if job.teacher else [])]
    with (
        reproducible(device, 0, job.threads),
        strided_pointwise_as_slices(job.module),
        computing_in(job.precision, job.module, device),
    ):
        for network in networks:
            memory_layout.apply_layout(network.to(device), memory_layout.layout_of(network))
        with _objective(job, torch.from_numpy(np.array(to_input(job.example)))) as objective:
            if objective.beside is not None:
                objective.beside.to(device)
            yield ShardLearner(job.module.train(), objective, device)


@contextmanager
def _objective(job: Job, example: Tensor) -> Iterator[LabelObjective]:
    if job.loss is None:
        yield LabelObjective(job.task, job.label_smoothing)
        return
    compare = losses.function(job.loss, job.task, job.label_smoothing)
    teacher = (job.teacher or nn.Identity()).eval()
    if not losses.needs_features(job.loss):
        yield LogitObjective(compare, teacher, TeacherCache(None), job.task)
        return
    example_input = tuple(example.shape[1:]), not example.is_floating_point()
    with Features(job.module, *example_input) as student_maps, Features(teacher, *example_input) as teacher_maps:
        yield FeatureObjective(compare, teacher, student_maps, teacher_maps, job.task)
