"""Checkpoints of unfinished stages, in `.training/` of the run's folder: a later attempt resumes from them.

The folder may be deleted at any time. Only time is lost.

What belongs to a teacher alone may be kept elsewhere (`sharing`), so that runs of other students have it too.
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
from edgekit.core.cache_key import gather

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact
    from edgekit.training.checkpoint import Checkpoint

FOLDER = ".training"
TEACHER_CACHE = "answers"
_shared: ContextVar[Path | None] = ContextVar("shared", default=None)


@dataclass(frozen=True)
class ResumeFolder:
    """A stage's folder in `.training/`, and the key of its artifact."""

    folder: Path
    key: str

    def checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint of the training called `name`."""
        from edgekit.training.checkpoint import Checkpoint

        return Checkpoint(self.folder / f"{name}.safetensors", f"{self.key}/{name}")

    def teacher(self, name: str, key: str) -> Checkpoint:
        """The checkpoint of a teacher's training; `key` is that of `training_key`, whatever the student is."""
        from edgekit.training.checkpoint import Checkpoint

        shared = _shared.get()
        place = self.folder / name if shared is None else shared / f"{name}-{key[:32]}"
        return Checkpoint(place.with_name(f"{place.name}.safetensors"), key)

    @property
    def teacher_cache(self) -> Path:
        """The folder of the teachers' logits, which all stages of the run share."""
        return (_shared.get() or self.folder.parent) / TEACHER_CACHE


@contextmanager
def sharing(folder: Path) -> Iterator[None]:
    """Meanwhile trained teachers and their logits are kept in `folder`, beside those of other runs."""
    token = _shared.set(folder)
    try:
        yield
    finally:
        _shared.reset(token)


def is_shared() -> bool:
    """Whether trained teachers are kept beside those of other runs."""
    return _shared.get() is not None


@contextmanager
def alone(checkpoint: Checkpoint, name: str, wait_s: float) -> Iterator[None]:
    """Wait, up to `wait_s` seconds, until no other run trains this shared teacher; then nobody else begins.

    ResourceError where the wait is over.
    """
    if not is_shared():
        yield
        return
    with ExitStack() as held:
        with progress.step(f"waiting until nobody else trains teacher {name}"):
            held.enter_context(lock.hold(checkpoint.path.with_suffix(".lock"), f"training of teacher {name}", wait_s))
        yield


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
