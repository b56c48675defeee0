"""Cross-validation of the baseline: every sample is tested once, by a network that has not seen it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.config import validate
from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data
from edgekit.models.from_artifact import spec_for
from edgekit.stages.profile.config import ProfileConfig
from edgekit.stages.profile.cross_validation import cross_validate, folds
from edgekit.training import resume
from tests.training.test_fit import blobs, data_of

MLP = "edgekit.models.mlp:mlp"


def config(**values: object) -> ProfileConfig:
    options = {"folds": 4, "epochs": 4, "batch_size": 16, "learning_rate": 0.05, "threads": 1, **values}
    checked: ProfileConfig = validate(ProfileConfig, options, "profile")
    return checked


@pytest.fixture
def vectors() -> Data:
    return data_of(blobs, "vector", 3)


def rows(data: Data) -> set[bytes]:
    return {row.tobytes() for row in data.validation.x}


def test_every_sample_is_in_one_fold_and_never_in_its_training(vectors: Data) -> None:
    parts = list(folds(vectors, config()))
    assert len(parts) == 4
    both = len(vectors.train) + len(vectors.validation)
    assert sum(len(part.validation) for part in parts) == both == len(set.union(*map(rows, parts)))
    for part in parts:
        assert not rows(part) & {row.tobytes() for row in part.train.x}
        assert len(part.train) + len(part.validation) == both
        assert np.ptp(np.bincount(part.validation.y)) <= 1
        assert part.test is vectors.test


def test_samples_of_one_recording_are_in_one_fold(vectors: Data) -> None:
    grouped = {
        name: dataclasses.replace(split, groups=start + np.arange(len(split)) // 3)
        for name, split, start in (("train", vectors.train, 0), ("validation", vectors.validation, 1000))
    }
    for part in folds(dataclasses.replace(vectors, **grouped), config()):
        assert not set(part.train.groups) & set(part.validation.groups)


def test_the_accuracy_is_that_of_all_folds_together(vectors: Data, tmp_path: Path) -> None:
    spec = spec_for(vectors, MLP, {"width": 8, "depth": 1}, [])
    folder = resume.ResumeFolder(tmp_path, "key")
    result = cross_validate(vectors, spec, config(), folder)
    assert (result["folds"], result["samples"]) == (4, 137)
    assert result["low"] < result["accuracy"] <= result["high"]
    assert result["accuracy"] > 0.7  # by chance a third
    assert cross_validate(vectors, spec, config(), folder) == result  # finished trainings are read from checkpoints
    assert len(list(tmp_path.glob("fold-*"))) == 4


def test_more_folds_than_samples_of_a_class_are_refused(vectors: Data) -> None:
    few = dataclasses.replace(
        vectors, train=vectors.train.take(np.arange(8)), validation=vectors.validation.take(np.arange(4))
    )
    with pytest.raises(
        DataError, match=r"profile\.folds: got 5, but a class has only 3 samples .* use at most 3 folds"
    ):
        list(folds(few, config(folds=5)))


def test_one_fold_and_anomalies_are_refused() -> None:
    with pytest.raises(ConfigError, match="folds: got 1; use 2 or more folds, or 0 for none"):
        config(folds=1)
    with pytest.raises(ConfigError, match="task and profile.folds disagree"):
        config(task="anomaly").check_consistency()
