"""Checkpoints of unfinished stages in the folder `.training/` of the run, from which a later attempt resumes.

The folder may be deleted at any time; only time is lost. Trained teachers may be stored in another folder
(`share_teachers`), so that several runs can use them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core import lock, progress
from edgekit.core.cache_key import collect_inputs

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact
    from edgekit.training.checkpoint import Checkpoint

FOLDER = ".training"
TEACHER_CACHE = "answers"
_shared: ContextVar[Path | None] = ContextVar("shared", default=None)


@dataclass(frozen=True)
class ResumeFolder:
    """The folder of a stage in `.training/`, and the cache key of its artifact."""

    folder: Path
    key: str

    def checkpoint(self, name: str) -> Checkpoint:
        """Return the checkpoint of the training called `name`."""
        from edgekit.training.checkpoint import Checkpoint

        return Checkpoint(self.folder / f"{name}.safetensors", f"{self.key}/{name}")

    def teacher(self, name: str, key: str) -> Checkpoint:
        """Return the checkpoint of a teacher. `key` is its `training_key`, which does not depend on the student."""
        from edgekit.training.checkpoint import Checkpoint

        shared = _shared.get()
        path = self.folder / name if shared is None else shared / f"{name}-{key[:32]}"
        return Checkpoint(path.with_name(f"{path.name}.safetensors"), key)

    @property
    def teacher_cache(self) -> Path:
        """The folder of the teachers' logits, which all stages of the run share."""
        return (_shared.get() or self.folder.parent) / TEACHER_CACHE


@contextmanager
def share_teachers(folder: Path) -> Iterator[None]:
    """Store trained teachers and their logits in `folder`, which other runs use too, inside the `with` block."""
    token = _shared.set(folder)
    try:
        yield
    finally:
        _shared.reset(token)


def is_shared() -> bool:
    """Return whether trained teachers are stored in a folder that other runs use too."""
    return _shared.get() is not None


@contextmanager
def only_trainer(checkpoint: Checkpoint, name: str, wait_s: float) -> Iterator[None]:
    """Hold the lock on a shared teacher, waiting up to `wait_s` seconds until no other run trains it.

    Raises ResourceError after that time. Without a shared folder, nothing is locked.
    """
    if not is_shared():
        yield
        return
    with ExitStack() as stack:
        with progress.step(f"waiting until nobody else trains teacher {name}"):
            stack.enter_context(lock.hold(checkpoint.path.with_suffix(".lock"), f"training of teacher {name}", wait_s))
        yield


def folder_for(
    out: Path, stage: str, source: Artifact, data_digest: str, config: dict[str, Any], libraries: Iterable[str]
) -> ResumeFolder:
    """Return the folder of a stage that writes to `out`, with the cache key that its artifact will have."""
    key = collect_inputs(stage, config, source.digest, data_digest, libraries).key
    return ResumeFolder(out.parent / FOLDER / stage, key)


def remove(run_folder: Path, stage: str) -> None:
    """Remove a stage's checkpoints, because it is finished or starts again."""
    _remove(run_folder / FOLDER / stage)


def remove_teacher_cache(run_folder: Path) -> None:
    """Remove the teachers' cached logits, so that a stage starts again without them."""
    _remove(run_folder / FOLDER / TEACHER_CACHE)


def _remove(folder: Path) -> None:
    """Remove a folder. Errors of the disk are raised, because the next write would fail too."""
    if folder.exists():
        shutil.rmtree(folder)
