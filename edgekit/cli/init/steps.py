"""Preprocess steps for samples of a kind, with means and deviations measured on the train split."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgekit.data import Data
from edgekit.runner.preprocess import transform

Step = dict[str, Any]
CHUNK = 1024
MOST_SOUNDS = 256
"""Sounds whose spectrograms are measured: each is expensive, and so many suffice for the mean."""
MOST_FEATURES = 128
"""Beyond, one mean and one deviation for all: nobody reads a config with a thousand numbers."""
WINDOW_S, MELS, FFT_SAMPLES, MOST_FRAMES = 0.03, 40, 512, 200


def measured(data: Data) -> list[tuple[Step, str]]:
    """The steps in order, each with what a reader should know of it."""
    if data.kind in ("text", "tensors"):  # token ids are names; a network of several inputs scales each by itself
        return []
    found: list[tuple[Step, str]] = []
    by, together = "by feature", False
    if data.kind == "image":
        found, by = [({"step": "scale", "factor": 1 / 255}, "1/255: bytes to 0..1")], "by channel"
    elif data.kind == "audio":
        samples, rate_hz = data.raw_shape[0], int(data.sample_rate_hz or 0)
        found = [(log_mel(samples, rate_hz), "(frames, mels, 1): a picture of the sound")]
        by, together = "of all", True
    elif data.kind != "vector":
        by = "by channel"
    if data.kind == "vector" and data.raw_shape[0] > MOST_FEATURES:
        by, together = "of all features together", True
    x = data.train.x if data.kind != "audio" else data.train.x[:MOST_SOUNDS]
    mean, std = _moments(x, [step for step, _ in found], together=together)
    steps = {"step": "normalize", "mean": mean, "std": std}
    return [*found, (steps, f"of the train split, {by}")]


def log_mel(samples: int, rate_hz: int) -> Step:
    """Windows of 30 ms, a third of it overlapping; shorter for short sounds, further apart in long ones."""
    longest = round(WINDOW_S * rate_hz)
    window = max(1, min(longest, samples // 4))
    return {
        "step": "log_mel",
        "rate_hz": rate_hz,
        "window_samples": window,
        "hop_samples": max(1, round(2 * window / 3), math.ceil(samples / MOST_FRAMES)),
        "fft_samples": max(FFT_SAMPLES, 1 << (longest - 1).bit_length()),
        "mels": MELS,
        "low_hz": 20.0,
        "high_hz": min(8000.0, rate_hz / 2),
        "floor": 1e-6,
    }


def _moments(x: np.ndarray, steps: list[Step], together: bool) -> tuple[list[float], list[float]]:
    """Mean and deviation over all but the last axis, in double precision; 1 for the deviation of what never varies."""
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for part in _parts(x, steps, together):
        count += len(part)
        total = total + part.sum(axis=0)
    mean = total / count
    for part in _parts(x, steps, together):
        squares = squares + ((part - mean) ** 2).sum(axis=0)
    std = np.sqrt(squares / count)
    std = np.where(std > 1e-6 * np.maximum(np.abs(mean), 1e-20), std, 1.0)
    pairs = [_rounded(*pair) for pair in zip(mean.tolist(), std.tolist(), strict=True)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _parts(x: np.ndarray, steps: list[Step], together: bool) -> Iterator[np.ndarray]:
    for start in range(0, len(x), CHUNK):
        values = transform.apply(steps, x[start : start + CHUNK]).astype(np.float64)
        yield values.reshape(-1, 1 if together else values.shape[-1])


def _rounded(mean: float, std: float) -> tuple[float, float]:
    """Both to a thousandth of the deviation: more would be noise."""
    digits = 3 - math.floor(math.log10(std))
    return round(mean, digits), round(std, digits)
