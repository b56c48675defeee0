"""Samples as a network takes them, made once and held in memory, where no augmentation changes them.

Log-mel of a sound takes many times as long as a small network's step on it. Each step of `preprocess` sees one sample
at a time, so the inputs are the same bits in any order and in any batch.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import numpy as np
import torch

from edgekit.core.hashing import canonical
from edgekit.runner.preprocess.transform import pipeline

HELD_BYTES = 512 << 20
"""Most inputs that are held at a time, of all splits together; what does not fit is made anew each time."""
PART = 64
"""Samples that are made at a time: sounds on their way to log-mel need many times their own memory."""

_held: dict[str, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}
"""By what they are made of, as long as the samples are there."""


class Inputs:
    """The inputs of raw samples (n, *sample), in their order of axes: images are (n, height, width, channels)."""

    def __init__(self, raw: np.ndarray, preprocess: list[dict[str, Any]], held_bytes: int = HELD_BYTES) -> None:
        self.raw, self.transform = raw, pipeline(preprocess)
        self._made = self._hold(preprocess, held_bytes) if preprocess and len(raw) else None

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, chosen: np.ndarray | slice) -> np.ndarray:
        """The inputs (k, *input) of some samples; what is held is copied, for a network may write on its input."""
        return self.transform(self.raw[chosen]) if self._made is None else np.array(self._made[chosen])

    def all(self) -> np.ndarray:
        """The inputs of all samples, (n, *input)."""
        starts = range(0, max(1, len(self)), PART)
        return np.concatenate([self.take(slice(start, start + PART)) for start in starts])

    def _hold(self, preprocess: list[dict[str, Any]], held_bytes: int) -> np.ndarray | None:
        """What an earlier training left here, or made now; None where it is too large."""
        first = self.transform(self.raw[:1])
        needed = first.nbytes * len(self.raw)
        if needed > held_bytes:
            return None
        key = self._digest(preprocess)
        if key not in _held:
            if needed + sum(made.nbytes for _, made in _held.values()) > held_bytes:
                return None
            made = np.empty((len(self.raw), *first.shape[1:]), first.dtype)
            for start in range(0, len(self.raw), PART):
                made[start : start + PART] = self.transform(self.raw[start : start + PART])
            held = _held
            _held[key] = (weakref.ref(self.raw, lambda _: held.pop(key, None)), made)
        return _held[key][1]

    def _digest(self, preprocess: list[dict[str, Any]]) -> str:
        found = hashlib.sha256(canonical([preprocess, str(self.raw.dtype), list(self.raw.shape)]))
        for start in range(0, len(self.raw), PART):
            found.update(np.ascontiguousarray(self.raw[start : start + PART]).data)
        return found.hexdigest()


def placed(inputs: np.ndarray) -> np.ndarray:
    """A copy that begins where torch's own tensors do: the last bits of a product can depend on that."""
    copied: np.ndarray = torch.from_numpy(np.empty(0, inputs.dtype)).new_empty(inputs.shape).numpy()
    np.copyto(copied, inputs)
    return copied
