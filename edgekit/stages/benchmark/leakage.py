"""Detect leakage: test whether a model that was trained outside this run has seen validation samples in training.

Such a model is more accurate on validation than on test. It is reported if this difference is significant.

The test is Fisher's exact test (Fisher 1935), one-sided: if the correct answers were distributed over both splits at
random, how often would at least as many as observed fall into validation? The test keeps its significance level for any
number of samples. It applies to accuracies that are shares of correct answers, but not to R², F1 and AUC, which are not
means over samples.
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

SIGNIFICANCE_LEVEL = 0.01
"""The significance level: at most this share of the models without leakage is reported as having seen validation."""


def check_leakage(
    name: str, role: ExternalRole, validation: SampleResults, test: SampleResults
) -> SeenValidation | None:
    """Test whether the model `name` has seen validation, from its results on both splits.

    Returns None if the accuracy is not a share of correct answers.
    """
    if not isinstance(validation, np.ndarray) or not isinstance(test, np.ndarray):
        return None
    p_value = fisher_p_value(int(validation.sum()), len(validation), int(test.sum()), len(test))
    return {
        "name": name,
        "role": role,
        "accuracy_validation": tasks.accuracy(validation),
        "samples_validation": len(validation),
        "accuracy_test": tasks.accuracy(test),
        "samples_test": len(test),
        "p_value": p_value,
        "level": SIGNIFICANCE_LEVEL,
        "known": p_value <= SIGNIFICANCE_LEVEL,
    }


def fisher_p_value(correct: int, samples: int, other_correct: int, other_samples: int) -> float:
    """Return the p-value of Fisher's exact test, one-sided.

    It is the probability of at least `correct` correct answers among `samples`, if the correct answers of both splits
    were distributed at random.
    """
    all_correct, total = correct + other_correct, samples + other_samples
    log_total = _log_choose(total, all_correct)
    max_correct = min(samples, all_correct)
    logs = (
        _log_choose(samples, count) + _log_choose(other_samples, all_correct - count) - log_total
        for count in range(correct, max_correct + 1)
        if all_correct - count <= other_samples
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(total: int, count: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)


TIME_LIMITS_S: dict[ExternalRole, float] = {"rival": 3600.0, "teacher": TEACHER_LIMIT_S}
"""Time limits for the answers to one split. For a teacher, the limit is the same as in training."""


def score_split(role: ExternalRole, file: TeacherFile, split: Split, data: Data, threads: int) -> SampleResults:
    """Return the results of a model file on each sample of a split.

    Raises ModelError, which names the file, if it cannot be run.
    """
    scores = model_file.logits(
        file,
        split.x,
        classes=len(data.classes),
        timeout_s=TIME_LIMITS_S[role],
        threads=threads,
        task=data.task,
        tensors=data.tensors or (),
    )
    return score_samples(scores, split, file.preprocess, data.task)


def check_model_file(
    name: str, role: ExternalRole, file: TeacherFile, data: Data, threads: int, test: SampleResults | None = None
) -> SeenValidation | None:
    """Test whether a model file has seen validation. Returns None if its accuracy is not a share of correct answers.

    `test` has the results of the file on the test split, if they are already available. If None is returned, the
    file was not run on validation.
    """
    if test is None:
        test = score_split(role, file, data.test, data, threads)
    if not isinstance(test, np.ndarray):
        return None
    return check_leakage(name, role, score_split(role, file, data.validation, data, threads), test)


def check_teacher(source: Artifact, data: Data, threads: int) -> SeenValidation | None:
    """Test whether the teacher that distill selected has seen validation.

    Returns None if the teacher is not a model file, or if it is the file of the baseline itself.

    Nothing is timed here, so `threads` may be the number used in training; 0 means all cores.
    """
    if not source.find_ancestor("distill"):
        return None
    teacher = chosen_teacher(source.ancestor("distill"))
    if not isinstance(teacher, TeacherFile) or teacher.sha256 == _baseline_sha256(source):
        return None
    return check_model_file(teacher.path.name, "teacher", teacher, data, threads)


def _baseline_sha256(source: Artifact) -> str | None:
    """Return the digest of the baseline's model file, or None if the baseline is not a file."""
    folder = source.ancestor("profile").path / "model"
    source_file = store.read_spec(folder).source
    return open_file(folder / source_file.file).sha256 if source_file else None
