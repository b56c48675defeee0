"""Embeddings: vectors of length 1. The similarity of two samples is their cosine, the dot product of their vectors."""

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
        """Return the answer as a dict for JSON."""
        return dict(vars(self))

    def lines(self) -> list[str]:
        """Return the answer as text for people and programs: a JSON list."""
        return [json.dumps(self.embedding)]


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Embedding]:
    """See `edgekit.runner.postprocess`. `top_k` is ignored."""
    return lambda outputs, top_k, timing_ms: Embedding(normalize(outputs), timing_ms)


def normalize(outputs: np.ndarray) -> list[float]:
    """Return outputs divided by their Euclidean length, as float32 values.

    The sum of squares is exactly rounded, so the bits are the same on every machine. Raises InputError if all outputs
    are zero, rather than BackendError, because the fault may lie in this sample alone.
    """
    values = outputs.astype(np.float64)
    length = math.sqrt(math.fsum(np.square(values).tolist()))
    if length == 0:
        raise InputError("the model gave a vector of zeros, which has no direction; it was not trained on such samples")
    normalized: list[float] = (values / length).astype(np.float32).tolist()
    return normalized
