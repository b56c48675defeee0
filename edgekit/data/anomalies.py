"""Anomalies are there to be judged by: a network that learns to reconstruct the ordinary must not see them.

What a train pool has of them goes to the splits that were taken out of it, half each where both were. Where it has
none, as in folders of train/normal and test/anomaly, validation is lent half of those of the given test split.
"""

from __future__ import annotations

import numpy as np

from edgekit.data import overlap
from edgekit.data.types import Split

Notes = tuple[str, ...]


def leave_train(
    left: np.ndarray, y: np.ndarray, groups: np.ndarray, taken: dict[str, np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, Notes]:
    """What is left of the pool without its anomalies; they are added to `taken`, all indices into the pool.

    y (n,) 0 or 1; groups (n,), equal for samples that must stay together.
    """
    anomalies = left[y[left] == 1]
    if not len(anomalies):
        return left, ()
    normal = np.setdiff1d(left, anomalies)
    if not taken:
        return normal, (f"{len(anomalies)} anomalies of train were left out: a network learns the ordinary alone",)
    names = sorted(taken)
    order = random.permutation(np.unique(groups[anomalies]))
    for place, name in enumerate(names):
        mine = anomalies[np.isin(groups[anomalies], order[place :: len(names)])]
        taken[name] = np.union1d(taken[name], mine)
    return normal, (f"{len(anomalies)} anomalies of train went to {' and '.join(names)}",)


def lent(splits: dict[str, Split], random: np.random.Generator) -> tuple[dict[str, Split], Notes]:
    """The splits, half of test's anomalies moved to a validation that has none."""
    validation, test = splits["validation"], splits["test"]
    groups = overlap.same_as(overlap.fingerprints(test.x))
    order = random.permutation(np.unique(groups[test.y == 1]))
    if validation.y.any() or len(order) < 2:
        return splits, ()
    moved = np.isin(groups, order[: len(order) // 2])
    joined = Split(*(np.concatenate([getattr(validation, axis), getattr(test, axis)[moved]]) for axis in "xy"))
    mixed = joined.take(random.permutation(len(joined)))
    note = f"{int(moved.sum())} of test's {int(test.y.sum())} anomalies went to validation, which had none"
    return {**splits, "validation": mixed, "test": test.take(np.flatnonzero(~moved))}, (note,)
