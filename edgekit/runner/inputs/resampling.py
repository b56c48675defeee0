"""Resample sounds with a windowed sinc, using only sums and products of single numbers, so that bits are reproducible.

The filter is a sinc with a Kaiser window (Kaiser and Schafer 1980; J. O. Smith, "Digital Audio Resampling", 2002): 64
zero crossings per side, 100 dB of attenuation, passband up to 0.9 of half the lower rate, stopband from 1.0 of it.
NumPy's own sine differs in the last bit between processors, so sine and Bessel function are computed as series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

CROSSINGS = 64
ATTENUATION_DB = 100.0
BETA = 0.1102 * (ATTENUATION_DB - 8.7)
TRANSITION = (ATTENUATION_DB - 7.95) / (2.285 * 2 * CROSSINGS * math.pi)
"""Width of the transition band, relative to half the lower rate."""
CUTOFF = 1.0 - TRANSITION / 2
BLOCK = 1 << 16
"""Outputs computed at a time, which limits the memory needed besides the sound itself."""
MAX_CACHED_COEFFICIENTS = 1 << 20
"""Largest table of coefficients to cache (8 MB). Larger filters are computed in parts of this size."""
MOST_RATIO = 64
"""Largest ratio of two rates. Beyond it, the filter would be longer than typical sounds."""


def resampled_length(samples: int, from_hz: int, to_hz: int) -> int:
    """Return how many samples a sound has at the other rate."""
    return -(-samples * to_hz // from_hz)


def resample(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """Resample a sound (samples,) float32.

    If the sound lies within [-1, 1], so does the result: it is clipped where the filter overshoots.
    """
    if from_hz == to_hz:
        return x
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    resampled = np.empty(resampled_length(len(x), from_hz, to_hz), np.float32)
    padding = reach(up, down)
    padded = np.zeros(len(x) + 2 * padding + 1)
    padded[padding : padding + len(x)] = x
    done = 0
    for part in blocks(padded, 0, 0, len(resampled), up, down):
        resampled[done : done + len(part)] = part
        done += len(part)
    if len(x) and np.abs(x).max() <= 1:
        np.clip(resampled, -1, 1, out=resampled)
    return resampled


class Resampler:
    """`resample` for a sound that arrives in parts: each output is returned as soon as its inputs are known.

    Each output is an independent sum, so its bits do not depend on the parts. Output lags behind by half the filter.
    There is one difference: a whole sound is clipped to [-1, 1] if all of it lies there. Here, only past samples are
    known, so a float sample beyond that range does not affect outputs that were returned before it.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        common = math.gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        self._reach = reach(self._up, self._down)
        self._buffer = np.zeros(self._reach)  # float64; begins with silence before the sound
        self._first = 0  # position of the first buffered sample, counting that silence
        self._samples = self._output_count = 0
        self._is_clipped = True

    def push(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs (samples,) float32, possibly none, that this part completes."""
        self._samples += len(x)
        if len(x) and not np.abs(x).max() <= 1:
            self._is_clipped = False
        self._buffer = np.concatenate([self._buffer, x.astype(np.float64)])
        return self._outputs_until(max(0, -(-(self._samples - self._reach) * self._up // self._down)))

    def finish(self) -> np.ndarray:
        """Return the remaining outputs, whose filter reaches beyond the end."""
        self._buffer = np.concatenate([self._buffer, np.zeros(self._reach + 1)])
        return self._outputs_until(-(-self._samples * self._up // self._down))

    def _outputs_until(self, count: int) -> np.ndarray:
        """Return the outputs after the last one returned, up to number `count`."""
        parts = blocks(self._buffer, self._first, self._output_count, count, self._up, self._down)
        outputs = np.concatenate([np.empty(0, np.float32), *parts])
        self._output_count = max(self._output_count, count)
        done = self._output_count * self._down // self._up - self._first
        self._buffer, self._first = self._buffer[done:], self._first + done
        if self._is_clipped:
            np.clip(outputs, -1, 1, out=outputs)
        return outputs


def blocks(padded: np.ndarray, first: int, start: int, end: int, up: int, down: int) -> Iterator[np.ndarray]:
    """Yield the outputs from number `start` up to `end`, in blocks (samples,) float32.

    `padded` is the sound, preceded by `reach` zeros, without its first `first` values.
    """
    is_cached = _taps(up, down) * up <= MAX_CACHED_COEFFICIENTS
    block = BLOCK if is_cached else max(1, MAX_CACHED_COEFFICIENTS // _taps(up, down))
    for begin in range(start, end, block):
        positions = np.arange(begin, min(begin + block, end), dtype=np.int64) * down
        yield _block(padded, positions // up - first, positions % up, (up, down), is_cached)


def _block(
    padded: np.ndarray, first: np.ndarray, phases: np.ndarray, ratio: tuple[int, int], is_cached: bool
) -> np.ndarray:
    """Return one output for each item of `first` and `phases`.

    The filter of an output begins at the index `first` of `padded`.
    """
    taps = _cached_coefficients(*ratio) if is_cached else _coefficients(phases, *ratio)
    total = np.zeros(len(first))
    with np.errstate(invalid="ignore"):  # values that are not finite stay so, and the model refuses them
        for offset, weights in enumerate(taps):
            total += padded[offset:].take(first) * (weights.take(phases) if is_cached else weights)
    return total.astype(np.float32)


def reach(up: int, down: int) -> int:
    """Return how many samples on each side an output depends on."""
    return math.ceil(CROSSINGS * max(1.0, down / up))


def _taps(up: int, down: int) -> int:
    return 2 * reach(up, down) + 1


@lru_cache(maxsize=4)
def _cached_coefficients(up: int, down: int) -> np.ndarray:
    return _coefficients(np.arange(up, dtype=np.int64), up, down)


def _coefficients(phases: np.ndarray, up: int, down: int) -> np.ndarray:
    """Return (taps, phases) float64. The coefficients of a phase add up to one."""
    side, scale = reach(up, down), min(1.0, up / down)
    offsets = np.arange(-side, side + 1, dtype=np.int64)[:, None]
    distance = (phases / up - offsets) * scale  # in crossings
    inside = np.maximum(0.0, 1.0 - (distance / CROSSINGS) ** 2)
    taps = _sinc(distance * CUTOFF) * _bessel(BETA * np.sqrt(inside)) * (inside > 0)
    total = np.zeros(len(phases))
    for row in taps:  # the order of NumPy's own sum depends on the processor
        total += row
    coefficients: np.ndarray = taps / total
    return coefficients


def _sinc(x: np.ndarray) -> np.ndarray:
    """Return sin(πx) / (πx) by a Taylor series around the nearest integer, accurate to the last bits of a double."""
    whole = np.floor(x + 0.5)
    angle = (x - whole) * math.pi
    square = angle * angle
    series = np.zeros_like(x)
    for power in range(23, 1, -2):
        series = (series + 1.0) * square * (-1.0 / (power * (power - 1)))
    sine = (series + 1.0) * angle * (1.0 - 2.0 * np.abs(whole % 2))
    safe = np.where(x == 0, 1.0, x)
    sinc: np.ndarray = np.where(x == 0, 1.0, sine / (safe * math.pi))
    return sinc


def _bessel(x: np.ndarray) -> np.ndarray:
    """Return the modified Bessel function of order 0, by its power series (Abramowitz and Stegun, 9.6.12)."""
    quarter = x * x * 0.25
    term, total = np.ones_like(x), np.ones_like(x)
    for number in range(1, 48):
        term = term * quarter * (1.0 / (number * number))
        total = total + term
    return total
