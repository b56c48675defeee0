"""Check that batches contain positives: pairs of samples with the same label, from which an embedding learns.

A batch without any pair teaches nothing, because its supervised contrastive loss is 0, and so is the gradient.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.core.config import LARGEST_BATCH
from edgekit.core.errors import ConfigError


def expected_pairs(labels: np.ndarray, batch_size: int) -> float:
    """Return how many pairs of samples with the same label a batch drawn from labels (n,) contains on average."""
    size = min(batch_size, len(labels))
    return size * (size - 1) / 2 * _pair_fraction(labels)


def min_batch_size(labels: np.ndarray) -> int:
    """Return the smallest batch size with one pair on average. At least two of the labels must be the same."""
    return min(len(labels), math.ceil((1 + math.sqrt(1 + 8 / _pair_fraction(labels))) / 2))


def check_batch_size(labels: np.ndarray, batch_size: int) -> None:
    """Raise ConfigError if batches contain less than one pair on average, because most of them would teach nothing."""
    pairs, needed = expected_pairs(labels, batch_size), min_batch_size(labels)
    if batch_size >= needed:
        return
    larger = f"use {needed} or more, or " if needed <= LARGEST_BATCH else ""
    raise ConfigError(
        f"batch_size: got {batch_size}; an embedding learns from pairs of samples with the same label, and a batch of "
        f"that size from {len(labels):,} samples contains {pairs:.2g} such pairs on average; {larger}add samples "
        "of each label"
    )


def _pair_fraction(labels: np.ndarray) -> float:
    """Return the fraction of all pairs of samples that have the same label."""
    counts = np.unique(labels, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1)).sum() / (len(labels) * (len(labels) - 1)))
