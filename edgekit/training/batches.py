"""The batches that a training sees, in order: a function of the data, its options and a generator's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.config import TrainOptions
from edgekit.runner.preprocess.transform import pipeline
from edgekit.training import augmentations
from edgekit.training.augment import augment, augment_boxes, augment_masks, augment_windows
from edgekit.training.chain import Chain
from edgekit.training.prepared import Inputs, placed

if TYPE_CHECKING:
    from edgekit.data import Data


def epoch(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One pass over the train split in a fresh order: raw samples (n, *sample), augmented, and labels (n,).

    Where samples are mixed, the labels are soft: (n, classes) float32. A copy of `random` gives the same batches: so a
    teacher can answer before the student asks.
    """
    train, chain = data.train, Chain(augmentations.active(options.augmentations, data), len(data.classes))
    for chosen in _orders(data, options, random):
        raw, labels = train.x[chosen], train.y[chosen]
        if data.task == "detection":
            raw, labels = augment_boxes(raw, labels, options.augment, random)
        elif data.task == "segmentation":
            raw, labels = augment_masks(raw, labels, options.augment, random)
        elif data.kind == "image":
            raw = augment(raw, options.augment, random)
        elif data.kind == "window":
            raw = augment_windows(raw, options.augment, random)
        yield chain(raw, labels, random)


class Prepared:
    """The same batches, their samples preprocessed; where nothing augments them, that is done once."""

    def __init__(self, data: Data, options: TrainOptions, preprocess: list[dict[str, Any]]) -> None:
        self.data, self.options, self.transform = data, options, pipeline(preprocess)
        self.inputs = None if _augments(data, options) else Inputs(data.train.x, preprocess)

    def epoch(self, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs (n, *input) in the samples' order of axes, and labels (n, …)."""
        if self.inputs is None:
            for raw, labels in epoch(self.data, self.options, random):
                yield placed(self.transform(raw)), labels
            return
        for chosen in _orders(self.data, self.options, random):
            yield placed(self.inputs.take(chosen)), self.data.train.y[chosen]


def _augments(data: Data, options: TrainOptions) -> bool:
    """Whether a sample may look another way each time: sounds, texts and vectors never do."""
    changes = data.task in ("detection", "segmentation") or data.kind in ("image", "window")
    return bool(augmentations.active(options.augmentations, data)) or (changes and options.augment != "none")


def _orders(data: Data, options: TrainOptions, random: np.random.Generator) -> Iterator[np.ndarray]:
    """The places of each batch's samples."""
    order = random.permutation(len(data.train.y))
    for part in parts(len(order), options.batch_size):
        yield order[part]


def parts(samples: int, size: int) -> list[slice]:
    """Slices of `size`; a last one of a single sample is left out, for batch normalisation has no variance of one."""
    found = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return found if samples % size != 1 or len(found) == 1 else found[:-1]
