"""Samples to draw from: as they were, or changed by a drift, each with the model's own answer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.drift.subjects import Subject

STEP = 32
"""Samples between two looks at a detector: what a delay is exact to."""


@dataclass(frozen=True)
class Pool:
    """Raw samples (n, *shape), the model's outputs (n, labels) for them, and classes (n,), −1 for an unknown one.

    `measure` gives the statistics (n, k) of samples and outputs, for detectors that take numbers.
    """

    raws: np.ndarray
    outputs: np.ndarray
    classes: np.ndarray
    measure: Callable[[np.ndarray, np.ndarray], np.ndarray]

    @cached_property
    def table(self) -> np.ndarray:
        """Statistics of all samples, float32 (n, k); computed once."""
        return self.measure(self.raws, self.outputs)

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each answer is right."""
        return np.asarray(self.outputs.argmax(1) == self.classes)


def sound(subject: Subject, measure: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Pool:
    """What the field gives while nothing has changed."""
    return Pool(subject.raws, subject.outputs, subject.classes, measure)


def changed(subject: Subject, like: Pool, raws: np.ndarray, classes: np.ndarray) -> Pool:
    """Samples that a drift has made, and the model's answers to them."""
    return Pool(raws, subject.answer(raws), classes, like.measure)


@dataclass(frozen=True)
class Stream:
    """A seeded sequence of samples: the pool and the place in it of each. From `onset` on something is different."""

    pools: tuple[Pool, ...]
    which: np.ndarray
    place: np.ndarray
    onset: int

    def __len__(self) -> int:
        return len(self.place)

    def parts(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(samples so far, raw samples, outputs), STEP by STEP."""
        for start in range(0, len(self), STEP):
            end = min(start + STEP, len(self))
            yield end, self._drawn("raws", start, end), self._drawn("outputs", start, end)

    def table(self) -> np.ndarray:
        """Statistics of all samples in their order, (n, k)."""
        return self._drawn("table", 0, len(self))

    def right(self) -> np.ndarray:
        """Whether each answer is right, in order."""
        return self._drawn("right", 0, len(self))

    def _drawn(self, what: str, start: int, end: int) -> np.ndarray:
        which, place = self.which[start:end], self.place[start:end]
        first = getattr(self.pools[which[0]], what)
        drawn = np.empty((end - start, *first.shape[1:]), first.dtype)
        for number in np.unique(which):
            mine = which == number
            drawn[mine] = getattr(self.pools[number], what)[place[mine]]
        return drawn
