"""Estimate the accuracy of the baseline by k-fold cross-validation, because a small validation split says little.

The samples of train and validation are divided into folds (Kohavi, IJCAI 1995). For each fold, a network is trained on
the other folds, and the answers of all networks together give one accuracy over all of these samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from edgekit.core import progress, tasks
from edgekit.core.errors import DataError
from edgekit.core.schema.training import CrossValidation
from edgekit.core.tasks import SampleResults, SampleScores
from edgekit.core.tasks.accuracy_interval import CONFIDENCE, accuracy_interval
from edgekit.data import Data
from edgekit.models import store
from edgekit.stages.profile.config import ProfileConfig
from edgekit.training.parallel_trainings import Training
from edgekit.training.predict import sample_scores
from edgekit.training.resume import ResumeFolder


def cross_validate(
    data: Data, spec: store.ModelSpec, config: ProfileConfig, resume_folder: ResumeFolder
) -> CrossValidation:
    """Train a network for each of `config.folds` folds, and return the accuracy over all samples of the folds.

    Samples of one recording are always in the same fold. Each training can be resumed.

    Raises
    ------
    DataError
        A class has fewer samples, or there are fewer recordings, than folds.
    """
    results: list[SampleResults] = []
    settings = config.seed, config.device, config.threads, config.training
    with progress.step("", "fold", config.folds) as bar:
        for number, fold in enumerate(folds(data, config)):  # one after another, because each is a copy of the samples
            bar.update(number)
            name = f"fold-{number}"
            module, _ = Training(name, resume_folder.checkpoint(name), spec, config, *settings).fit(fold)
            results.append(sample_scores(module, fold.validation, spec.preprocess, data.task))
    pooled = _pooled(results)
    low, high = accuracy_interval(pooled)
    return {
        "folds": config.folds,
        "samples": len(pooled),
        "accuracy": tasks.accuracy(pooled),
        "confidence": CONFIDENCE,
        "low": low,
        "high": high,
    }


def folds(data: Data, config: ProfileConfig) -> Iterator[Data]:
    """Yield the data of each fold: the fold is its validation split, and the other folds are its train split."""
    both = data.train.concatenate(data.validation)
    strata = tasks.load_task(data.task).strata(both.y)
    smallest = int(np.unique(strata, return_counts=True)[1].min())
    if smallest < config.folds:
        raise DataError(
            f"profile.folds: got {config.folds}, but a class has only {smallest} samples in train and validation; "
            f"use at most {smallest} folds, or add samples"
        )
    groups = np.arange(len(both.y)) if both.groups is None else both.groups
    if len(np.unique(groups)) < config.folds:
        raise DataError(f"profile.folds: got {config.folds}, but there are {len(np.unique(groups))} recordings")
    splitter = StratifiedGroupKFold(config.folds, shuffle=True, random_state=config.seed)
    for others, fold in splitter.split(np.zeros(len(strata)), strata, groups):
        yield dataclasses.replace(data, train=both.take(np.sort(others)), validation=both.take(np.sort(fold)))


def _pooled(results: list[SampleResults]) -> SampleResults:
    if isinstance(results[0], SampleScores):
        return SampleScores(results[0].task, np.concatenate([each.values for each in results]))  # type: ignore[union-attr]
    return np.concatenate(results)  # type: ignore[arg-type]
