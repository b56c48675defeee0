"""`inputs/resample.py` for a sound that comes in parts: each sample as soon as all that it depends on is there.

Every output is a sum of its own, so the parts do not change its bits. What comes out lags behind by half of the filter.
The one difference: a whole sound is clipped to -1…1 where all of it lies there. Here only what has come is known, so
a float sample beyond that range does not change what came out before it.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.runner.inputs import resample


class Resampler:
    """The sound so far, as much of it as later outputs need."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        common = math.gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        self._reach = resample.reach(self._up, self._down)
        self._held = np.zeros(self._reach)  # float64; silence before the sound
        self._first = 0  # place of the first held sample, counted with that silence
        self._samples = self._made = 0
        self._is_clipped = True

    def push(self, x: np.ndarray) -> np.ndarray:
        """The outputs (samples,) float32 that this part completes, maybe none."""
        self._samples += len(x)
        if len(x) and not np.abs(x).max() <= 1:
            self._is_clipped = False
        self._held = np.concatenate([self._held, x.astype(np.float64)])
        return self._until(max(0, -(-(self._samples - self._reach) * self._up // self._down)))

    def finish(self) -> np.ndarray:
        """The outputs whose filter reaches beyond the end."""
        self._held = np.concatenate([self._held, np.zeros(self._reach + 1)])
        return self._until(-(-self._samples * self._up // self._down))

    def _until(self, count: int) -> np.ndarray:
        """The outputs from the last one on, up to number `count`."""
        parts = resample.blocks(self._held, self._first, self._made, count, self._up, self._down)
        made = np.concatenate([np.empty(0, np.float32), *parts])
        self._made = max(self._made, count)
        done = self._made * self._down // self._up - self._first
        self._held, self._first = self._held[done:], self._first + done
        if self._is_clipped:
            np.clip(made, -1, 1, out=made)
        return made
