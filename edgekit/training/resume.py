"""Checkpoints of unfinished stages, in `.training/` of the run's folder: a later attempt resumes from them.

The folder may be deleted at any time. Only time is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.cache_key import gather

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact
    from edgekit.training.checkpoint import Checkpoint

FOLDER = ".training"
TEACHER_CACHE = "answers"


@dataclass(frozen=True)
class ResumeFolder:
    """A stage's folder in `.training/`, and the key of its artifact."""

    folder: Path
    key: str

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint of the training called `name`."""
        from edgekit.training.checkpoint import Checkpoint

        return Checkpoint(self.folder / f"{name}.safetensors", f"{self.key}/{name}")

    @property
    def teacher_cache(self) -> Path:
        """The folder of the teachers' logits, which all stages of the run share."""
        return self.folder.parent / TEACHER_CACHE


def of(
    out: Path, stage: str, source: Artifact, data_digest: str, config: dict[str, Any], libraries: Iterable[str]
) -> ResumeFolder:
    """The folder for a stage that works in `out`, under the key that its artifact will have."""
    key = gather(stage, config, source.digest, data_digest, libraries).key
    return ResumeFolder(out.parent / FOLDER / stage, key)


def remove(run_folder: Path, stage: str) -> None:
    """Remove a stage's checkpoints: it is sealed, or it starts again."""
    _remove(run_folder / FOLDER / stage)


def remove_teacher_cache(run_folder: Path) -> None:
    """Remove the teachers' cached logits: a stage starts again without them."""
    _remove(run_folder / FOLDER / TEACHER_CACHE)


def _remove(folder: Path) -> None:
    """An error of the disk is raised although nothing is lost: the next write would fail too."""
    if folder.exists():
        shutil.rmtree(folder)
