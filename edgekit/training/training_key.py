"""What decides the network that a training by labels leaves, as one digest: trainings of equal keys are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.core.cache_key import NO_RESULT, installed_versions, source_digest
from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.hashing import digest
from edgekit.core.source_code import code_digest
from edgekit.models.spec import ModelSpec
from edgekit.training.teacher_cache import TRAINING

if TYPE_CHECKING:
    from edgekit.data import Data


def training_key(
    spec: ModelSpec,
    options: TrainOptions,
    data: Data,
    *,
    seed: int,
    device: str,
    threads: int,
    training: TrainingOptions,
) -> str:
    """Hex sha256 of the network and its source, the options, the data, the libraries and the code that trains."""
    return digest(
        {
            "spec": spec.model_dump(mode="json"),
            "source": source_digest(spec.builder) if spec.builder else None,
            "options": {name: getattr(options, name) for name in TrainOptions.model_fields},
            "data": data.digest,
            "task": data.task,
            "where": [seed, device, threads],
            "training": training.model_dump(mode="json"),
            "libraries": installed_versions(("numpy", "torch")),
            "code": code_digest(*TRAINING, without=NO_RESULT),
        }
    )
