"""A teacher's logits, epoch by epoch, remembered on disk: trainings that see the same batches share them."""

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

from edgekit.core import floors
from edgekit.core.cache_key import code_digest, installed_versions, source_digest, top_module
from edgekit.core.config import TrainOptions
from edgekit.core.hashing import digest
from edgekit.runner.files import make_folder, write_atomically
from edgekit.training.teachers.model_file import LIBRARIES, TeacherFile

if TYPE_CHECKING:
    from edgekit.data import Data

SHAPED_BY = (*floors.below("training"), "training")
"""Code on which the answers, or the batches they belong to, may depend."""
PACKAGES = ("edgekit", "torch")
"""Whose networks are known by that code and by version."""


@dataclass(frozen=True)
class Answers:
    """(n, classes) float32 for each epoch, in the order of its batches; without a folder nothing is remembered."""

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
    ) -> Answers:
        """A folder below `home` for all that decides the answers; `conditions` are seed, threads and device."""
        if home is None:
            return cls(None)
        stream = {
            "teacher": teacher_digest(teacher),
            "data": data.digest,
            "preprocess": preprocess,
            "batch_size": options.batch_size,
            "augment": options.augment,
            "torch": torch.__version__,
            "code": {part: code_digest(part) for part in SHAPED_BY},
            **conditions,
        }
        return cls(home / digest(stream)[:32])

    def recall(self, epoch: int) -> np.ndarray | None:
        """What was remembered of an epoch; None where that is nothing, or damaged."""
        if self.folder is None:
            return None
        try:
            with np.load(self._path(epoch), allow_pickle=False) as kept:
                logits: np.ndarray = kept["logits"]
                return logits
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def remember(self, epoch: int, logits: np.ndarray) -> None:
        """Keep an epoch's answers; a zip, for its checksum."""
        if self.folder is None:
            return
        make_folder(self.folder)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, logits=logits)
        write_atomically(self._path(epoch), content.getvalue())

    def _path(self, epoch: int) -> Path:
        assert self.folder is not None
        return self.folder / f"epoch-{epoch:04d}.npz"


def teacher_digest(teacher: nn.Module | TeacherFile) -> str:
    """Hex sha256 of what decides a teacher's answers.

    Its weights, its structure and the user's source behind it; or its file, that file's steps and what may run it.
    """
    if isinstance(teacher, TeacherFile):
        return digest([teacher.sha256, teacher.preprocess, installed_versions(("numpy", *LIBRARIES))])
    classes = {f"{type(part).__module__}:{type(part).__name__}" for part in teacher.modules()}
    sources = {name: source_digest(name) for name in sorted(classes) if top_module(name) not in PACKAGES}
    found = hashlib.sha256(f"{teacher!r}{sources}".encode())
    for name, value in sorted(teacher.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
