"""The batches that a training sees, in order: a function of the data, its options and a generator's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.core.config import TrainOptions
from edgekit.training.augment import augment, augment_boxes, augment_masks, augment_windows

if TYPE_CHECKING:
    from edgekit.data import Data


def epoch(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One pass over the train split in a fresh order: raw samples (n, *sample), augmented, and labels (n,).

    A copy of `random` gives the same batches: so a teacher can answer before the student asks.
    """
    train = data.train
    order = random.permutation(len(train.y))
    for part in parts(len(order), options.batch_size):
        chosen = order[part]
        raw, labels = train.x[chosen], train.y[chosen]
        if data.task == "detection":
            raw, labels = augment_boxes(raw, labels, options.augment, random)
        elif data.task == "segmentation":
            raw, labels = augment_masks(raw, labels, options.augment, random)
        elif data.kind == "image":
            raw = augment(raw, options.augment, random)
        elif data.kind == "window":
            raw = augment_windows(raw, options.augment, random)
        yield raw, labels


def parts(samples: int, size: int) -> list[slice]:
    """Slices of `size`; a last one of a single sample is left out, for batch normalisation has no variance of one."""
    found = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return found if samples % size != 1 or len(found) == 1 else found[:-1]
