"""What a file that was made elsewhere answers of a split, in a process of its own, and whether it knows validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.variants import MadeElsewhere, SeenValidation
from edgekit.core.tasks import Answered
from edgekit.models import store
from edgekit.stages.benchmark.leakage import check_leakage
from edgekit.training.evaluate import score_samples
from edgekit.training.objective import TEACHER_LIMIT_S
from edgekit.training.teachers import model_file
from edgekit.training.teachers.from_artifact import chosen_teacher
from edgekit.training.teachers.model_file import TeacherFile, open_file

if TYPE_CHECKING:
    from edgekit.data import Data, Split

LIMITS_S: dict[MadeElsewhere, float] = {"rival": 3600.0, "teacher": TEACHER_LIMIT_S}
"""Longest time for the answers of one split. A teacher has as long as where it taught: hours of work come before."""


def answered(role: MadeElsewhere, file: TeacherFile, split: Split, data: Data, threads: int) -> Answered:
    """How right it is on each sample of the split; ModelError names the file."""
    scores = model_file.logits(
        file,
        split.x,
        classes=len(data.classes),
        timeout_s=LIMITS_S[role],
        threads=threads,
        task=data.task,
        tensors=data.tensors or (),
    )
    return score_samples(scores, split, file.preprocess, data.task)


def seen_by(
    name: str, role: MadeElsewhere, file: TeacherFile, data: Data, threads: int, test: Answered | None = None
) -> SeenValidation | None:
    """Whether the file knows validation; None where accuracy is no share of right answers. `test`: its answers there.

    Validation is not asked where nothing can be told from it.
    """
    if test is None:
        test = answered(role, file, data.test, data, threads)
    if not isinstance(test, np.ndarray):
        return None
    return check_leakage(name, role, answered(role, file, data.validation, data, threads), test)


def seen_by_teacher(source: Artifact, data: Data, threads: int) -> SeenValidation | None:
    """The same of the teacher that distill chose; None where that is no file, or the baseline's own.

    Nothing is timed here, so `threads` may be those that it taught with; 0: all cores.
    """
    if not source.made_by("distill"):
        return None
    teacher = chosen_teacher(source.ancestor("distill"))
    if not isinstance(teacher, TeacherFile) or teacher.sha256 == _baseline_sha256(source):
        return None
    return seen_by(teacher.path.name, "teacher", teacher, data, threads)


def _baseline_sha256(source: Artifact) -> str | None:
    """Of the file that the baseline came as; None where it came as none."""
    folder = source.ancestor("profile").path / "model"
    given = store.read_spec(folder).source
    return open_file(folder / given.file).sha256 if given else None
