"""Preprocess steps of windows that overlap: log-mel frames that the window before has too are not computed again.

A frame of `log_mel` depends on its own samples alone. So a window that begins a whole number of `hop_samples` after the
one before shares frames with it, bit for bit. The steps in front of `log_mel` must treat each sample alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.runner.preprocess import transform
from edgekit.runner.preprocess.log_mel import frames
from edgekit.runner.preprocess.steps import Step

PER_SAMPLE_STEPS = ("scale", "normalize")


class SlidingPreprocess:
    """(samples,) float32 → what `transform.pipeline` makes of it, bit for bit; keeps the last spectrogram."""

    def __init__(self, steps: Sequence[Step], samples: int) -> None:
        place = find_shareable_log_mel(steps)
        assert place is not None
        step = steps[place]
        self._window, self._hop, self._samples = step["window_samples"], step["hop_samples"], samples
        self._spectrogram = transform.pipeline(steps[: place + 1])
        self._rest = transform.pipeline(steps[place + 1 :])
        self._frames = frames(samples, self._window, self._hop)
        self._kept: np.ndarray | None = None
        self._start = 0

    def __call__(self, raw: np.ndarray, start: int) -> np.ndarray:
        """Of the window that begins at sample `start` of its stream."""
        shared = self.shared(start - self._start) if self._kept is not None else 0
        new = self._spectrogram(raw[shared * self._hop :])
        if self._kept is not None and shared:
            new = np.concatenate([self._kept[self._frames - shared :], new])
        self._kept, self._start = new, start
        return self._rest(new)

    def shared(self, moved: int) -> int:
        """How many frames a window has of one that began `moved` samples before it."""
        if moved <= 0 or moved % self._hop:
            return 0
        return max(0, self._frames - moved // self._hop)

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return self._frames


def find_shareable_log_mel(steps: Sequence[Step]) -> int | None:
    """The place of a `log_mel` whose frames windows can share; None where there is none."""
    place = next((place for place, step in enumerate(steps) if step["step"] == "log_mel"), None)
    if place is None:
        return None
    before = steps[:place]
    sizes = (len(values) for step in before if step["step"] == "normalize" for values in (step["mean"], step["std"]))
    return (
        place if all(step["step"] in PER_SAMPLE_STEPS for step in before) and all(size == 1 for size in sizes) else None
    )
