"""Anomalies are for evaluation alone: a network that learns to reconstruct normal samples must not see them.

What a train pool has of them goes to the splits that were taken out of it, half each where both were. Where it has
none, as in folders of train/normal and test/anomaly, validation is lent half of those of the given test split.
"""

from __future__ import annotations

import numpy as np

from edgekit.data import overlap, recordings
from edgekit.data.types import Split

Notes = tuple[str, ...]


def leave_train(
    left: np.ndarray, y: np.ndarray, groups: np.ndarray, taken: dict[str, np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, Notes]:
    """What is left of the pool without its anomalies; they are added to `taken`, all indices into the pool.

    y (n,) 0 or 1; groups (n,), equal for samples that must stay together.
    """
    count = int((y[left] == 1).sum())
    if not count:
        return left, ()
    leaving = left[np.isin(groups[left], groups[left[y[left] == 1]])]
    normal, more = np.setdiff1d(left, leaving), len(leaving) - count
    moved = f"{count} anomalies of train" + (f", with {more} normal samples of their recordings," if more else "")
    if not taken:
        return normal, (f"{moved} were left out: the network learns from normal samples alone",)
    names = sorted(taken)
    order = random.permutation(np.unique(groups[leaving]))
    for place, name in enumerate(names):
        mine = leaving[np.isin(groups[leaving], order[place :: len(names)])]
        taken[name] = np.union1d(taken[name], mine)
    return normal, (f"{moved} went to {' and '.join(names)}",)


def share_with_validation(splits: dict[str, Split], random: np.random.Generator) -> tuple[dict[str, Split], Notes]:
    """The splits, half of test's anomalies moved to a validation that has none."""
    validation, test = splits["validation"], splits["test"]
    groups = overlap.same_as(overlap.fingerprints(test.x))
    if test.groups is not None:
        groups = recordings.connected_components(groups, test.groups)
    order = random.permutation(np.unique(groups[test.y == 1]))
    if validation.y.any() or len(order) < 2:
        return splits, ()
    moved = np.isin(groups, order[: len(order) // 2])
    joined = validation.joined(test.take(np.flatnonzero(moved)))
    mixed = joined.take(random.permutation(len(joined)))
    note = f"{int(test.y[moved].sum())} of test's {int(test.y.sum())} anomalies went to validation, which had none"
    return {**splits, "validation": mixed, "test": test.take(np.flatnonzero(~moved))}, (note,)
