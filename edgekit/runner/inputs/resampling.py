"""Sounds at another rate: a windowed sinc, by sums and products of single numbers alone, so the same bits everywhere.

The filter is Kaiser's window around a sinc (Kaiser and Schafer 1980; J. O. Smith, "Digital Audio Resampling", 2002):
64 zero crossings a side, 100 dB of attenuation, flat up to 0.9 of the lower rate's half and shut at 1.0 of it. numpy's
own sines differ in their last bit from processor to processor, so sine and Bessel function are series here.
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
"""Of the lower rate's half: what lies between flat and shut."""
CUTOFF = 1.0 - TRANSITION / 2
BLOCK = 1 << 16
"""Outputs that are made at a time: what a block needs beside the sound itself is bounded."""
MAX_CACHED_COEFFICIENTS = 1 << 20
"""Coefficients that are kept as one table, 8 MB of them; of more, as many are made at a time."""
MOST_RATIO = 64
"""Between two rates; beyond, the filter is longer than what it is for."""


def resampled_length(samples: int, from_hz: int, to_hz: int) -> int:
    """How many samples a sound has at the other rate."""
    return -(-samples * to_hz // from_hz)


def resample(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """A sound (samples,) float32 at another rate; one inside [-1, 1] stays there, where the filter would ring out."""
    if from_hz == to_hz:
        return x
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    made = np.empty(resampled_length(len(x), from_hz, to_hz), np.float32)
    padding = reach(up, down)
    padded = np.zeros(len(x) + 2 * padding + 1)
    padded[padding : padding + len(x)] = x
    done = 0
    for part in blocks(padded, 0, 0, len(made), up, down):
        made[done : done + len(part)] = part
        done += len(part)
    if len(x) and np.abs(x).max() <= 1:
        np.clip(made, -1, 1, out=made)
    return made


class Resampler:
    """`resample` for a sound that comes in parts: each sample as soon as all that it depends on is there.

    Every output is a sum of its own, so the parts do not change its bits. What comes out lags behind by half of the
    filter. The one difference: a whole sound is clipped to -1…1 where all of it lies there. Here only what has come is
    known, so a float sample beyond that range does not change what came out before it.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        common = math.gcd(from_hz, to_hz)
        self._up, self._down = to_hz // common, from_hz // common
        self._reach = reach(self._up, self._down)
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
        parts = blocks(self._held, self._first, self._made, count, self._up, self._down)
        made = np.concatenate([np.empty(0, np.float32), *parts])
        self._made = max(self._made, count)
        done = self._made * self._down // self._up - self._first
        self._held, self._first = self._held[done:], self._first + done
        if self._is_clipped:
            np.clip(made, -1, 1, out=made)
        return made


def blocks(padded: np.ndarray, first: int, start: int, end: int, up: int, down: int) -> Iterator[np.ndarray]:
    """Outputs number `start` to `end`, (samples,) float32 at a time.

    `padded` is the sound with `reach` zeros before it, from place `first` on.
    """
    kept = _taps(up, down) * up <= MAX_CACHED_COEFFICIENTS
    block = BLOCK if kept else max(1, MAX_CACHED_COEFFICIENTS // _taps(up, down))
    for begin in range(start, end, block):
        places = np.arange(begin, min(begin + block, end), dtype=np.int64) * down
        yield _block(padded, places // up - first, places % up, (up, down), kept)


def _block(padded: np.ndarray, first: np.ndarray, phases: np.ndarray, ratio: tuple[int, int], kept: bool) -> np.ndarray:
    """Outputs whose tap number `reach` meets sample `first`; `padded` begins `reach` samples before the sound."""
    taps = _cached_coefficients(*ratio) if kept else _coefficients(phases, *ratio)
    total = np.zeros(len(first))
    with np.errstate(invalid="ignore"):  # what is not finite stays so, and the model refuses it
        for place, weights in enumerate(taps):
            total += padded[place:].take(first) * (weights.take(phases) if kept else weights)
    return total.astype(np.float32)


def reach(up: int, down: int) -> int:
    """Samples of the sound on each side of an output."""
    return math.ceil(CROSSINGS * max(1.0, down / up))


def _taps(up: int, down: int) -> int:
    return 2 * reach(up, down) + 1


@lru_cache(maxsize=4)
def _cached_coefficients(up: int, down: int) -> np.ndarray:
    return _coefficients(np.arange(up, dtype=np.int64), up, down)


def _coefficients(phases: np.ndarray, up: int, down: int) -> np.ndarray:
    """(taps, phases) float64; those of a phase add up to one."""
    side, scale = reach(up, down), min(1.0, up / down)
    offsets = np.arange(-side, side + 1, dtype=np.int64)[:, None]
    distance = (phases / up - offsets) * scale  # in crossings
    inside = np.maximum(0.0, 1.0 - (distance / CROSSINGS) ** 2)
    taps = _sinc(distance * CUTOFF) * _bessel(BETA * np.sqrt(inside)) * (inside > 0)
    total = np.zeros(len(phases))
    for row in taps:  # numpy's own sum adds in an order that depends on the processor
        total += row
    made: np.ndarray = taps / total
    return made


def _sinc(x: np.ndarray) -> np.ndarray:
    """sin(πx) / (πx) by Taylor's series around the nearest whole number; right to the last bits of a double."""
    whole = np.floor(x + 0.5)
    angle = (x - whole) * math.pi
    square = angle * angle
    series = np.zeros_like(x)
    for power in range(23, 1, -2):
        series = (series + 1.0) * square * (-1.0 / (power * (power - 1)))
    sine = (series + 1.0) * angle * (1.0 - 2.0 * np.abs(whole % 2))
    safe = np.where(x == 0, 1.0, x)
    made: np.ndarray = np.where(x == 0, 1.0, sine / (safe * math.pi))
    return made


def _bessel(x: np.ndarray) -> np.ndarray:
    """The modified Bessel function of order 0, by its power series (Abramowitz and Stegun, 9.6.12)."""
    quarter = x * x * 0.25
    term, total = np.ones_like(x), np.ones_like(x)
    for number in range(1, 48):
        term = term * quarter * (1.0 / (number * number))
        total = total + term
    return total
