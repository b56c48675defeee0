"""A vector of length 1: two samples are as alike as the cosine of theirs, which is the sum of the products."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


@dataclass(frozen=True)
class Embedding:
    """The model's outputs, divided by their Euclidean length."""

    embedding: list[float]
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """For people and programs: a JSON list."""
        return [json.dumps(self.embedding)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Embedding]:
    """See the package; the number of labels wanted has no meaning here."""
    return lambda outputs, top_k, timing_ms: Embedding(normalize(outputs), timing_ms)


def normalize(outputs: np.ndarray) -> list[float]:
    """Numbers of float32; the same bits on every machine, for the sum of the squares is exactly rounded.

    InputError for zeros, which other samples need not give.
    """
    values = outputs.astype(np.float64)
    length = math.sqrt(math.fsum(np.square(values).tolist()))
    if length == 0:
        raise InputError("the model gave a vector of zeros, which has no direction; it was not trained to see this")
    found: list[float] = (values / length).astype(np.float32).tolist()
    return found
