"""A cache on disk for a teacher's logits, epoch by epoch. Trainings that see the same batches share it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from edgekit.core.cache_key import MODULES_WITHOUT_EFFECT, installed_versions, source_digest, top_module
from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.hashing import digest
from edgekit.core.source_code import code_digest
from edgekit.models.spec import ModelSpec
from edgekit.runner.files import make_folder, write_atomically
from edgekit.training.teachers.model_file import LIBRARIES, TeacherFile

if TYPE_CHECKING:
    from edgekit.data import Data

TRAINING = ("edgekit.training.fit", "edgekit.training.objective", "edgekit.training.teachers")
"""Modules whose code may change the logits or the batches that they belong to."""
LIBRARY = "torch"
"""Its networks are identified by its version, all others by their source."""


@dataclass(frozen=True)
class TeacherCache:
    """Logits (n, classes) float32 of each epoch, in the order of its batches. Without a folder nothing is cached."""

    folder: Path | None

    @classmethod
    def of(
        cls,
        home: Path | None,
        teacher: nn.Module | TeacherFile,
        data: Data,
        preprocess: list[dict[str, Any]],
        options: TrainOptions,
        **conditions: Any,
    ) -> TeacherCache:
        """A folder in `home`, named by a digest of all that decides the logits.

        `conditions` are seed, threads and device. Without `home` nothing is cached.
        """
        if home is None:
            return cls(None)
        stream = {
            "teacher": teacher_digest(teacher),
            "data": data.digest,
            "preprocess": preprocess,
            "batch_size": options.batch_size,
            "augment": options.augment,
            "torch": torch.__version__,
            "code": code_digest(*TRAINING, without=MODULES_WITHOUT_EFFECT),
            **({"augmentations": options.augmentations} if options.augmentations else {}),
            **conditions,
        }
        return cls(home / digest(stream)[:32])

    def get(self, epoch: int) -> np.ndarray | None:
        """The logits of an epoch; None where they are missing or damaged."""
        if self.folder is None:
            return None
        try:
            with np.load(self._path(epoch), allow_pickle=False) as kept:
                logits: np.ndarray = kept["logits"]
                return logits
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, epoch: int, logits: np.ndarray) -> None:
        """Store the logits of an epoch. The file is a zip, for its checksum."""
        if self.folder is None:
            return
        make_folder(self.folder)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, logits=logits)
        try:
            write_atomically(self._path(epoch), content.getvalue())
        except FileNotFoundError:  # a process of another host with the same number has put its own, equal one there
            if not self._path(epoch).is_file():
                raise

    def _path(self, epoch: int) -> Path:
        assert self.folder is not None
        return self.folder / f"epoch-{epoch:04d}.npz"


def teacher_digest(teacher: nn.Module | TeacherFile) -> str:
    """Hex sha256 of what decides a teacher's logits.

    Of a network: its weights, its structure and its own source code.
    Of a file: its content, its preprocess steps and the versions of the interpreters.
    """
    if isinstance(teacher, TeacherFile):
        return digest([teacher.sha256, teacher.preprocess, installed_versions(("numpy", *LIBRARIES))])
    classes = {f"{type(part).__module__}:{type(part).__name__}" for part in teacher.modules()}
    sources = {name: source_digest(name) for name in sorted(classes) if top_module(name) != LIBRARY}
    found = hashlib.sha256(f"{teacher!r}{sources}".encode())
    for name, value in sorted(teacher.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


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
            "code": code_digest(*TRAINING, without=MODULES_WITHOUT_EFFECT),
        }
    )
