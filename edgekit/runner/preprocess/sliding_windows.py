"""Preprocess overlapping windows, computing the log-mel frames that they share only once.

A frame of `log_mel` depends only on its own samples. A window that starts a multiple of `hop_samples` after the one
before therefore shares frames with it, bit for bit, provided that the steps before `log_mel` treat all samples alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.runner.preprocess import transform
from edgekit.runner.preprocess.log_mel import frames
from edgekit.runner.preprocess.steps import Step

PER_SAMPLE_STEPS = ("scale", "normalize")


class SlidingPreprocess:
    """Computes the same bits as `transform.pipeline` from (samples,) float32, and keeps the last spectrogram."""

    def __init__(self, steps: Sequence[Step], samples: int) -> None:
        position = find_shareable_log_mel(steps)
        assert position is not None
        step = steps[position]
        self._window, self._hop, self._samples = step["window_samples"], step["hop_samples"], samples
        self._spectrogram = transform.pipeline(steps[: position + 1])
        self._rest = transform.pipeline(steps[position + 1 :])
        self._frames = frames(samples, self._window, self._hop)
        self._last_frames: np.ndarray | None = None
        self._start = 0

    def __call__(self, raw: np.ndarray, start: int) -> np.ndarray:
        """Preprocess the window that starts at sample `start` of its stream."""
        shared = self.shared(start - self._start) if self._last_frames is not None else 0
        new = self._spectrogram(raw[shared * self._hop :])
        if self._last_frames is not None and shared:
            new = np.concatenate([self._last_frames[self._frames - shared :], new])
        self._last_frames, self._start = new, start
        return self._rest(new)

    def shared(self, offset: int) -> int:
        """Return how many frames a window shares with one that started `offset` samples earlier."""
        if offset <= 0 or offset % self._hop:
            return 0
        return max(0, self._frames - offset // self._hop)

    @property
    def frames(self) -> int:
        """The number of frames of a window."""
        return self._frames


def find_shareable_log_mel(steps: Sequence[Step]) -> int | None:
    """Return the position of a `log_mel` step whose frames windows can share, or None."""
    position = next((position for position, step in enumerate(steps) if step["step"] == "log_mel"), None)
    if position is None:
        return None
    earlier = steps[:position]
    sizes = (len(values) for step in earlier if step["step"] == "normalize" for values in (step["mean"], step["std"]))
    return (
        position
        if all(step["step"] in PER_SAMPLE_STEPS for step in earlier) and all(size == 1 for size in sizes)
        else None
    )
