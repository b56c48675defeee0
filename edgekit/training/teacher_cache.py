"""A cache on disk for a teacher's logits of each epoch, which trainings that see the same batches share."""

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

TRAINING_MODULES = ("edgekit.training.fit", "edgekit.training.objective", "edgekit.training.teachers")
"""Modules whose code may change the logits or the batches that they belong to."""
LIBRARY = "torch"
"""Layers of this library are identified by the library's version, and all other layers by their source code."""


@dataclass(frozen=True)
class TeacherCache:
    """Logits (n, classes) float32 for each epoch, in the order of its batches. Without a folder, nothing is cached."""

    folder: Path | None

    @classmethod
    def open(
        cls,
        parent: Path | None,
        teacher: nn.Module | TeacherFile,
        data: Data,
        preprocess: list[dict[str, Any]],
        options: TrainOptions,
        **conditions: Any,
    ) -> TeacherCache:
        """Return the cache of a training, in a folder in `parent` named by a digest of all that decides the logits.

        `conditions` are the seed, the device and the numbers of threads and shards. Without `parent`, nothing is
        cached.
        """
        if parent is None:
            return cls(None)
        key = {
            "teacher": teacher_digest(teacher),
            "data": data.digest,
            "preprocess": preprocess,
            "batch_size": options.batch_size,
            "augment": options.augment,
            "torch": torch.__version__,
            "code": code_digest(*TRAINING_MODULES, without=MODULES_WITHOUT_EFFECT),
            **({"augmentations": options.augmentations} if options.augmentations else {}),
            **conditions,
        }
        return cls(parent / digest(key)[:32])

    def get(self, epoch: int) -> np.ndarray | None:
        """Return the logits of an epoch, or None if they are missing or damaged."""
        if self.folder is None:
            return None
        try:
            with np.load(self._path(epoch), allow_pickle=False) as file:
                logits: np.ndarray = file["logits"]
                return logits
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def put(self, epoch: int, logits: np.ndarray) -> None:
        """Store the logits of an epoch in a zip file, because its checksum reveals damage."""
        if self.folder is None:
            return
        make_folder(self.folder)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, logits=logits)
        try:
            write_atomically(self._path(epoch), content.getvalue())
        except FileNotFoundError:  # a process with the same id on another host has just written the same file
            if not self._path(epoch).is_file():
                raise

    def _path(self, epoch: int) -> Path:
        assert self.folder is not None
        return self.folder / f"epoch-{epoch:04d}.npz"


def teacher_digest(teacher: nn.Module | TeacherFile) -> str:
    """Return the SHA-256, in hex, of everything that decides a teacher's logits.

    For a network these are its weights, structure and source code; for a file its content, its preprocess steps and the
    versions of the interpreters.
    """
    if isinstance(teacher, TeacherFile):
        return digest([teacher.sha256, teacher.preprocess, installed_versions(("numpy", *LIBRARIES))])
    classes = {f"{type(part).__module__}:{type(part).__name__}" for part in teacher.modules()}
    sources = {name: source_digest(name) for name in sorted(classes) if top_module(name) != LIBRARY}
    hasher = hashlib.sha256(f"{teacher!r}{sources}".encode())
    for name, value in sorted(teacher.state_dict().items()):
        hasher.update(name.encode())
        hasher.update(value.detach().cpu().contiguous().numpy().tobytes())
    return hasher.hexdigest()


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
    """Return the key of a training: the SHA-256, in hex, of everything that decides its weights.

    These are the network and its source code, the options, the data, the libraries and the code of the training loop.
    """
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
            "code": code_digest(*TRAINING_MODULES, without=MODULES_WITHOUT_EFFECT),
        }
    )
