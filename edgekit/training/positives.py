"""Whether batches hold what an embedding learns of: pairs of samples with one label, its positives.

A batch without one teaches nothing: the supervised contrastive loss is 0 there, and so is its gradient.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.core.config import LARGEST_BATCH
from edgekit.core.errors import ConfigError


def pairs(labels: np.ndarray, batch_size: int) -> float:
    """How many pairs of samples with one label a batch holds on average, drawn from labels (n,)."""
    size = min(batch_size, len(labels))
    return size * (size - 1) / 2 * _share(labels)


def least(labels: np.ndarray) -> int:
    """The smallest batch that holds one pair on average; labels of which two are the same."""
    return min(len(labels), math.ceil((1 + math.sqrt(1 + 8 / _share(labels))) / 2))


def check(labels: np.ndarray, batch_size: int) -> None:
    """ConfigError for batches that hold less than one pair on average: most of them would teach nothing."""
    found, needed = pairs(labels, batch_size), least(labels)
    if batch_size >= needed:
        return
    larger = f"use {needed} or more, or " if needed <= LARGEST_BATCH else ""
    raise ConfigError(
        f"batch_size: got {batch_size}; an embedding learns of two samples with one label, and such a batch of "
        f"{len(labels):,} samples holds {found:.2g} pairs of them on average; {larger}give more samples of each label"
    )


def _share(labels: np.ndarray) -> float:
    """Of all pairs of samples, the share with one label."""
    counts = np.unique(labels, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1)))
