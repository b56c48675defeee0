"""What happens to sensors with several channels. float32 (n, time, channels) within ±4."""

from __future__ import annotations

import numpy as np

from benchmarks.drift.drifts import Drift, as_type

Generator = np.random.Generator
LIMIT = 4.0


def _within(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    return as_type(values, like, -LIMIT, LIMIT)


def gain(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """All channels times 1 + `by`."""
    return _within(raws * np.float32(1 + by), raws)


def bias(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """The first channel has an offset."""
    changed = raws.copy()
    changed[..., 0] += np.float32(by)
    return _within(changed, raws)


def noise(raws: np.ndarray, sigma: float, rng: Generator) -> np.ndarray:
    """Normal noise on all channels."""
    return _within(raws + rng.normal(0, sigma, raws.shape).astype(np.float32), raws)


def missing(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """The second channel is zero in a share of the windows: a loose plug."""
    changed = raws.copy()
    changed[rng.random(len(raws)) < share, :, 1] = 0
    return changed


def stuck(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """The third channel stays at its first value, in a share of the windows."""
    changed = raws.copy()
    chosen = rng.random(len(raws)) < share
    changed[chosen, :, 2] = changed[chosen, :1, 2]
    return changed


def swapped(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """The first two channels change places in a share of the windows."""
    changed = raws.copy()
    chosen = rng.random(len(raws)) < share
    changed[chosen, :, 0], changed[chosen, :, 1] = raws[chosen, :, 1], raws[chosen, :, 0]
    return changed


def delayed(raws: np.ndarray, samples: float, rng: Generator) -> np.ndarray:
    """The last three channels come late by some samples, which are the window's own last ones."""
    changed = raws.copy()
    changed[..., 3:] = np.roll(raws[..., 3:], round(samples), axis=1)
    return changed


def turned(raws: np.ndarray, degrees: float, rng: Generator) -> np.ndarray:
    """The sensor is mounted askew: turned around its third axis, channels 0 and 1 as well as 3 and 4."""
    angle = np.deg2rad(degrees)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    changed = raws.copy()
    for first in (0, 3):
        a, b = raws[..., first], raws[..., first + 1]
        changed[..., first], changed[..., first + 1] = cos * a - sin * b, sin * a + cos * b
    return _within(changed, raws)


def slower(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """The clock is wrong: the window shows 1 + `by` times less of the movement."""
    places = np.arange(raws.shape[1]) / (1 + by)
    low = np.floor(places).astype(int)
    part = (places - low).astype(np.float32)[:, None]
    return raws[:, low] * (1 - part) + raws[:, np.minimum(low + 1, raws.shape[1] - 1)] * part


ALL = (
    Drift("gain", "+10 %, +60 %", gain, 0.1, 0.6),
    Drift("bias of a channel", "0.1, 0.6", bias, 0.1, 0.6),
    Drift("noise", "sigma 0.05, 0.4", noise, 0.05, 0.4),
    Drift("missing channel", "5 %, all of the windows", missing, 0.05, 1.0),
    Drift("stuck value", "5 %, all of the windows", stuck, 0.05, 1.0),
    Drift("channels swapped", "10 %, all of the windows", swapped, 0.1, 1.0),
    Drift("channels late", "1, 6 of 50 samples", delayed, 1.0, 6.0),
    Drift("sensor turned", "10, 60 degrees", turned, 10.0, 60.0),
    Drift("sample rate error", "3 %, 30 %", slower, 0.03, 0.3),
)
