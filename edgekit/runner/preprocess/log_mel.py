"""Log-mel spectrograms, using only sums and products of single numbers, so that every machine computes the same bits.

NumPy's Fourier transform, cosines and logarithms are compiled differently for different processors (fused
multiply-adds, other orders of summation). The transform here is therefore the textbook one (Cooley & Tukey 1965, radix
2) on whole arrays. Cosines, weights and logarithms come from `math` and are rounded to float32, which hides the last
bit of a double. The mel scale is 2595 log10(1 + f / 700) (O'Shaughnessy 1987), with triangles as in TensorFlow's
`linear_to_mel_weight_matrix`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.runner.preprocess.steps import Step

LOWEST_BIN = 1
"""Bin 0, the constant part of a sound, is left out."""


def frames(samples: int, window: int, hop: int) -> int:
    """Return how many complete windows fit into a sound."""
    return 1 + (samples - window) // hop if samples >= window else 0


class LogMel:
    """(…, samples) float32 → (…, frames, mels, 1) float32: log(floor + mel-weighted power), with Hann windows."""

    def __init__(self, step: Step) -> None:
        self.window, self.hop, self.size = step["window_samples"], step["hop_samples"], step["fft_samples"]
        self.mels = step["mels"]
        self.floor = float(np.float32(step["floor"]))
        self.hann = _rounded(0.5 - 0.5 * math.cos(2 * math.pi * index / self.window) for index in range(self.window))
        self.triangles = _triangles(step)
        self.bands = _bands(self.triangles, self.size // 2)
        self.twiddle_factors = [_twiddle_factors(half) for half in _halves(self.size)]
        self.order = _bit_reversed(self.size)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        count = frames(x.shape[-1], self.window, self.hop)
        positions = self.hop * np.arange(count)[:, None] + np.arange(self.window)
        parts = x.astype(np.float64)[..., positions] * self.hann
        padded = np.zeros((*parts.shape[:-1], self.size))
        padded[..., : self.window] = parts
        power = self._power(padded)
        mels = np.zeros((*power.shape[:-1], self.mels))
        for bins, weights in self.bands:
            mels += power.take(bins, axis=-1) * weights
        mels += self.floor
        logs = np.array([math.log(value) for value in mels.ravel().tolist()], dtype=np.float64)
        return logs.astype(np.float32).reshape(*mels.shape, 1)

    def _power(self, x: np.ndarray) -> np.ndarray:
        """Return the power spectrum |FFT|² of real (…, size), up to and including the middle bin."""
        real, imaginary = x[..., self.order], np.zeros_like(x)
        for cosines, sines in self.twiddle_factors:
            half = len(cosines)
            shape = (*x.shape[:-1], self.size // (2 * half), 2, half)
            re, im = real.reshape(shape), imaginary.reshape(shape)
            even_re, even_im, odd_re, odd_im = re[..., 0, :], im[..., 0, :], re[..., 1, :], im[..., 1, :]
            rotated_re = odd_re * cosines - odd_im * sines
            rotated_im = odd_re * sines + odd_im * cosines
            real, imaginary = _butterfly(even_re, rotated_re), _butterfly(even_im, rotated_im)
        real, imaginary = real.reshape(x.shape), imaginary.reshape(x.shape)
        bins = self.size // 2 + 1
        real, imaginary = real[..., :bins], imaginary[..., :bins]
        power: np.ndarray = real * real + imaginary * imaginary
        return power


def _rounded(values: object) -> np.ndarray:
    """Return doubles that float32 can hold, so that they do not depend on the last bit of `math`."""
    return np.array(list(values), dtype=np.float32).astype(np.float64)  # type: ignore[call-overload]


def _halves(size: int) -> Sequence[int]:
    return [1 << stage for stage in range(size.bit_length() - 1)]


def _twiddle_factors(half: int) -> tuple[np.ndarray, np.ndarray]:
    angles = [-math.pi * index / half for index in range(half)]
    return _rounded(map(math.cos, angles)), _rounded(map(math.sin, angles))


def _bit_reversed(size: int) -> np.ndarray:
    bits = size.bit_length() - 1
    return np.array([int(format(index, f"0{bits}b")[::-1], 2) if bits else 0 for index in range(size)])


def _mel(hz: float) -> float:
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def _butterfly(even: np.ndarray, rotated: np.ndarray) -> np.ndarray:
    """Return the sums and, after them, the differences of two arrays (…, half), as (…, 2, half)."""
    result = np.empty((*even.shape[:-1], 2, even.shape[-1]))
    np.add(even, rotated, out=result[..., 0, :])
    np.subtract(even, rotated, out=result[..., 1, :])
    return result


def _bands(triangles: list[tuple[int, list[float]]], last: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the bins (mels,) and their weights (mels,) for each position within the triangles.

    Beyond its end, a triangle has the weight 0. Each position is added for all mels at once, which is cheap even
    for few frames, and each mel still adds up its bins in their order.
    """
    longest = max(len(weights) for _, weights in triangles)
    bands = []
    for offset in range(longest):
        bins = np.array([min(first + offset, last) for first, _ in triangles], dtype=np.int64)
        bands.append((bins, np.array([weights[offset] if offset < len(weights) else 0.0 for _, weights in triangles])))
    return bands


def _triangles(step: Step) -> list[tuple[int, list[float]]]:
    """For each mel band, return its first bin and the weights from there on."""
    count, size, rate_hz = step["mels"], step["fft_samples"], step["rate_hz"]
    low, high = _mel(step["low_hz"]), _mel(step["high_hz"])
    edges = [low + (high - low) * index / (count + 1) for index in range(count + 2)]
    bins = [_mel(index * rate_hz / size) for index in range(size // 2 + 1)]
    triangles = []
    for left, middle, right in zip(edges, edges[1:], edges[2:]):
        weights = {
            index: min((mel - left) / (middle - left), (right - mel) / (right - middle))
            for index, mel in enumerate(bins)
            if index >= LOWEST_BIN and left < mel < right
        }
        first = min(weights, default=LOWEST_BIN)
        triangles.append((first, [float(np.float32(weights[index])) for index in sorted(weights)]))
    return triangles
