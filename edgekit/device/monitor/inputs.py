"""Statistics of raw samples, by kind: a few numbers that change when a camera, a microphone or a sensor changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

    Statistics = Callable[[np.ndarray], np.ndarray]

IMAGE = ("brightness", "contrast", "sharpness", "noise", "clipped")
COLOURS = ("red", "green", "blue")
AUDIO = ("loudness_db", "peak", "centroid_hz", "zero_crossings", "silence", "clipping")
TEXT = ("length", "unknown", "mean_id")
MAX_COLUMNS = 16
"""How many columns of a window or a vector are examined."""
BANDS, ROWS = 8, 4
"""Of a large picture, only this many bands of neighbouring rows are examined, with this many rows each."""
FRAME = 512
"""The spectrum of a sound is computed from up to 16 pieces of this many samples."""
QUIET, LOUD = 1e-3, 0.999


def statistic_names(raw: RawSpec) -> list[str]:
    """Return the names of the statistics of `make_statistics` for samples of this kind; none for several tensors."""
    if raw.kind == "image":
        return [*IMAGE, *(COLOURS if raw.shape[2] == 3 else ())]
    if raw.kind in ("audio", "text"):
        return list(AUDIO if raw.kind == "audio" else TEXT)
    if raw.kind == "tensors":
        return []
    columns = list(raw.columns or map(str, range(raw.shape[-1])))[:MAX_COLUMNS]
    spreads = [f"spread:{each}" for each in columns] if raw.kind == "window" else []
    return [*(f"mean:{each}" for each in columns), *spreads, "missing"]


def make_statistics(raw: RawSpec, unknown: int | None = None) -> Statistics:
    """Return a function that computes the statistics (n, names), float64, of samples (n, …).

    It expects only the part of each sample that the function of `make_row_selector` returns. `unknown` is the token ID
    of words that the vocabulary lacks.
    """
    if raw.kind == "image":
        low, high = _range(raw)
        return lambda x: _image((x.astype(np.float32) - np.float32(low)) * np.float32(1 / (high - low)), raw)
    if raw.kind == "audio":
        return lambda x: _audio(x, raw.sample_rate_hz or 1)
    if raw.kind == "text":
        return lambda x: _text(x, -1 if unknown is None else unknown)
    return {"window": _window, "vector": _vector}.get(raw.kind, lambda x: np.empty((len(x), 0)))


def make_row_selector(raw: RawSpec) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that reduces a sample to the part that is examined: of a large picture, only some rows."""
    height = raw.shape[0]
    if raw.kind != "image" or height <= 2 * BANDS * ROWS:
        return lambda x: x
    firsts = np.linspace(0, height - ROWS, BANDS).astype(np.int64)
    rows = (firsts[:, None] + np.arange(ROWS)).ravel()
    return lambda x: x[rows]


def _range(raw: RawSpec) -> tuple[float, float]:
    if raw.dtype in ("uint8", "int8"):
        limits = np.iinfo(raw.dtype)
        return float(limits.min), float(limits.max)
    return raw.range or (0.0, 1.0)


def _image(x: np.ndarray, raw: RawSpec) -> np.ndarray:
    """Return the statistics of pictures: brightness, contrast, sharpness, noise, clipping and colours.

    Brightness and contrast are mean and standard deviation of grey from 0 to 1. Sharpness is the mean step between
    neighbours. Noise is Immerkær's estimate (1996): the mean absolute response to a mask that ignores edges. Clipping
    and colours are fractions.
    """
    grey = x.mean(axis=3) if x.shape[3] > 1 else x[..., 0]
    rows = grey.reshape(len(x), BANDS, ROWS, -1) if x.shape[1] != raw.shape[0] else grey[:, None]
    step = np.diff(rows, axis=3)
    second = np.diff(np.diff(step, axis=3), 2, axis=2)
    noise = np.abs(second).mean(axis=(1, 2, 3)) * (np.pi / 2) ** 0.5 / 6 if second.size else np.zeros(len(x))
    clipped = ((x <= 0) | (x >= 1)).mean(axis=(1, 2, 3))
    sharp = np.abs(step).mean(axis=(1, 2, 3)) if step.size else noise
    statistics = [grey.mean(axis=(1, 2)), grey.std(axis=(1, 2)), sharp, noise, clipped]
    if x.shape[3] == 3:
        means = x.mean(axis=(1, 2))
        statistics += list((means / (means.sum(axis=1, keepdims=True) + 1e-6)).T)
    return np.stack(statistics, axis=1).astype(np.float64)


def _audio(x: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return level, peak, spectral centroid, zero crossings, and fractions of silence and of clipping."""
    size = np.abs(x)
    loudness = 10 * np.log10(np.square(x, dtype=np.float64).mean(axis=1) + 1e-12)
    length = min(FRAME, x.shape[1])
    firsts = np.linspace(0, x.shape[1] - length, min(16, max(1, x.shape[1] // length))).astype(np.int64)
    frames = x[:, firsts[:, None] + np.arange(length)] * np.hanning(length + 2)[1:-1]
    power = np.square(np.abs(np.fft.rfft(frames, axis=2))).sum(axis=1)
    centroid = power @ np.fft.rfftfreq(length, 1 / rate_hz) / (power.sum(axis=1) + 1e-12)
    signs = np.signbit(x)
    crossings = (signs[:, 1:] != signs[:, :-1]).mean(axis=1) if x.shape[1] > 1 else np.zeros(len(x))
    quiet, loud = (size < QUIET).mean(axis=1), (size >= LOUD).mean(axis=1)
    return np.stack([loudness, size.max(axis=1), centroid, crossings, quiet, loud], axis=1).astype(np.float64)


def _window(x: np.ndarray) -> np.ndarray:
    """Return means and standard deviations by column, and the fraction of columns that are constant."""
    part = x[..., :MAX_COLUMNS].astype(np.float64)
    still = (x.max(axis=1) == x.min(axis=1)).mean(axis=1, keepdims=True)
    return np.concatenate([part.mean(axis=1), part.std(axis=1), still], axis=1)


def _vector(x: np.ndarray) -> np.ndarray:
    """Return the values themselves, and the fraction of zeros."""
    return np.concatenate([x[:, :MAX_COLUMNS].astype(np.float64), (x == 0).mean(axis=1, keepdims=True)], axis=1)


def _text(x: np.ndarray, unknown: int) -> np.ndarray:
    """Return the number of tokens before the padding, the fraction of unknown ones, and the mean of their IDs."""
    filled = x != x[:, -1:]
    length = np.where(filled.any(axis=1), x.shape[1] - filled[:, ::-1].argmax(axis=1), 1)
    inside = np.arange(x.shape[1]) < length[:, None]
    return np.stack([length, (inside & (x == unknown)).sum(axis=1) / length, (x * inside).sum(axis=1) / length], axis=1)
