"""What a stage keeps while it works, so that a later attempt goes on from there: `.training/` in the run's folder.

It may be deleted at any time; only time is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.cache_key import gather

if TYPE_CHECKING:
    from edgekit.core.artifact import Artifact
    from edgekit.training.checkpoint import Checkpoint

FOLDER = ".training"
ANSWERS = "answers"


@dataclass(frozen=True)
class Unfinished:
    """A stage's place there, and the key of what it makes."""

    folder: Path
    key: str

    def checkpoint(self, name: str) -> Checkpoint:
        """Where the training called `name` keeps its state."""
        from edgekit.training.checkpoint import Checkpoint

        return Checkpoint(self.folder / f"{name}.safetensors", f"{self.key}/{name}")

    @property
    def answers(self) -> Path:
        """Where teachers' answers are remembered, for all stages of the run."""
        return self.folder.parent / ANSWERS


def of(
    out: Path, stage: str, source: Artifact, data_digest: str, config: dict[str, Any], libraries: Iterable[str]
) -> Unfinished:
    """The place of a stage that works in `out`, as it will be sealed."""
    key = gather(stage, config, source.digest, data_digest, libraries).key
    return Unfinished(out.parent / FOLDER / stage, key)


def forget(run_folder: Path, stage: str) -> None:
    """Remove what a stage kept: it is sealed, or it is to begin anew."""
    _remove(run_folder / FOLDER / stage)


def forget_answers(run_folder: Path) -> None:
    """Remove what teachers answered: a stage is to begin anew, whatever is remembered."""
    _remove(run_folder / FOLDER / ANSWERS)


def _remove(folder: Path) -> None:
    """A disk that refuses is told of, though nothing is lost: the next write would meet it."""
    if folder.exists():
        shutil.rmtree(folder)
