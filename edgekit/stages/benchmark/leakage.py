"""Leakage: a model trained elsewhere that knows validation is right there surely more often than on test.

By Fisher's exact test (Fisher 1935), one-sided: of all that both splits hold, how often would chance put at least so
many right answers into validation? It keeps its level for any number of samples. It serves accuracies that are the
share of right answers; R², F1 and AUC are no means over samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.variants import ExternalRole, SeenValidation
from edgekit.core.tasks import SampleResults
from edgekit.models import store
from edgekit.training.objective import TEACHER_LIMIT_S
from edgekit.training.predict import score_samples
from edgekit.training.teachers import model_file
from edgekit.training.teachers.from_artifact import chosen_teacher
from edgekit.training.teachers.model_file import TeacherFile, open_file

if TYPE_CHECKING:
    from edgekit.data import Data, Split

LEVEL = 0.01
"""Of models that know neither split, so many are called to know validation, at most."""


def check_leakage(
    name: str, role: ExternalRole, validation: SampleResults, test: SampleResults
) -> SeenValidation | None:
    """The row of metrics of what `name` answered of either split; None where accuracy is no share of right answers."""
    if not isinstance(validation, np.ndarray) or not isinstance(test, np.ndarray):
        return None
    p_value = by_chance(int(validation.sum()), len(validation), int(test.sum()), len(test))
    return {
        "name": name,
        "role": role,
        "accuracy_validation": tasks.accuracy(validation),
        "samples_validation": len(validation),
        "accuracy_test": tasks.accuracy(test),
        "samples_test": len(test),
        "p_value": p_value,
        "level": LEVEL,
        "known": p_value <= LEVEL,
    }


def by_chance(right: int, samples: int, other_right: int, other_samples: int) -> float:
    """Probability of `right` or more right answers of `samples`, were the right ones of both splits dealt at random."""
    both, total = right + other_right, samples + other_samples
    whole = _log_choose(total, both)
    most = min(samples, both)
    logs = (
        _log_choose(samples, mine) + _log_choose(other_samples, both - mine) - whole
        for mine in range(right, most + 1)
        if both - mine <= other_samples
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(all_of: int, some: int) -> float:
    return math.lgamma(all_of + 1) - math.lgamma(some + 1) - math.lgamma(all_of - some + 1)


LIMITS_S: dict[ExternalRole, float] = {"rival": 3600.0, "teacher": TEACHER_LIMIT_S}
"""Longest time for the answers of one split. A teacher has as long as where it taught: hours of work come before."""


def answered(role: ExternalRole, file: TeacherFile, split: Split, data: Data, threads: int) -> SampleResults:
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
    name: str, role: ExternalRole, file: TeacherFile, data: Data, threads: int, test: SampleResults | None = None
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
    if not source.find_ancestor("distill"):
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
