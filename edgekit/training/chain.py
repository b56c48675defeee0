"""The augmentations of one training, one after the other on each batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.training import augmentations
from edgekit.training.augmentations import AugmentationOptions


class Chain:
    """Applies them in their order. Where one of them mixes samples, all labels become soft ones."""

    def __init__(self, options: Sequence[AugmentationOptions], classes: int) -> None:
        self.steps = [(augmentations.function(each), each) for each in options]
        self.mixes = any(augmentations.mixes(each) for each in options)
        self.classes = classes

    def __call__(
        self, samples: np.ndarray, labels: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples (n, *sample) of the same type, and their labels: as they were, or (n, classes) float32 where mixed.

        Soft labels are the mean of both samples' labels by the share of each (Zhang et al. 2018, equation 2).
        """
        if self.mixes:
            labels = self._soft(labels)
        for apply, options in self.steps:
            samples, mix = apply(samples, options, random)
            if mix is not None:
                share: np.ndarray = mix.kept[:, None].astype(np.float32)
                labels = share * labels + (1 - share) * labels[mix.partners]
        return samples, labels

    def _soft(self, labels: np.ndarray) -> np.ndarray:
        """Classes (n,) as rows of 0 and 1; labels of several classes (n, classes) are such rows."""
        if labels.ndim == 2:
            return labels.astype(np.float32)
        found: np.ndarray = np.eye(self.classes, dtype=np.float32)[labels]
        return found
