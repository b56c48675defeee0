"""What happens to sound: amplifier, converter, clock, microphone, room. float32 (n, samples) within ±1."""

from __future__ import annotations

import numpy as np

from benchmarks.drift.drifts import Drift, as_type

Generator = np.random.Generator
RATE_HZ = 8000


def gain(raws: np.ndarray, decibels: float, rng: Generator) -> np.ndarray:
    """Louder or softer, cut off at full scale."""
    return as_type(raws * np.float32(10 ** (decibels / 20)), raws)


def rate_error(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """The converter runs 1 + `by` times too slow, so that all pitches rise; the end is repeated backwards."""
    places = np.arange(raws.shape[1]) * (1 + by)
    last = raws.shape[1] - 1
    places = np.where(places > last, 2 * last - places, places)
    low = np.floor(places).astype(int)
    part = (places - low).astype(np.float32)
    return as_type(raws[:, low] * (1 - part) + raws[:, np.minimum(low + 1, last)] * part, raws)


def clipping(raws: np.ndarray, level: float, rng: Generator) -> np.ndarray:
    """An amplifier that saturates: amplified by `level` decibels, cut off at full scale, and turned down again."""
    factor = np.float32(10 ** (level / 20))
    return as_type(np.clip(raws * factor, -1, 1) / factor, raws)


def offset(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """A direct current, `by` of full scale."""
    return as_type(raws + np.float32(by), raws)


def background(raws: np.ndarray, level: float, rng: Generator) -> np.ndarray:
    """White noise of a root mean square of `level`."""
    return as_type(raws + rng.normal(0, level, raws.shape).astype(np.float32), raws)


def hum(raws: np.ndarray, level: float, rng: Generator) -> np.ndarray:
    """A tone of 50 Hz with an amplitude of `level`, in another phase each time."""
    phases = rng.uniform(0, 2 * np.pi, (len(raws), 1))
    tone = np.sin(phases + 2 * np.pi * 50 / RATE_HZ * np.arange(raws.shape[1]))
    return as_type(raws + (level * tone).astype(np.float32), raws)


def muffled(raws: np.ndarray, strength: float, rng: Generator) -> np.ndarray:
    """A low-pass filter of first order, y = (1 − s) x + s y before: a microphone that is covered or old."""
    from scipy.signal import lfilter

    return as_type(lfilter([1 - strength], [1, -strength], raws, axis=1), raws)


def dropouts(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """A share of the blocks of 10 ms is silent: packets that are lost."""
    block = RATE_HZ // 100
    lost = rng.random((len(raws), -(-raws.shape[1] // block))) < share
    return np.where(np.repeat(lost, block, axis=1)[:, : raws.shape[1]], np.float32(0), raws)


def coarse(raws: np.ndarray, lost_bits: float, rng: Generator) -> np.ndarray:
    """Fewer bits: 16 − `lost_bits` are left."""
    steps = np.float32(2 ** (15 - lost_bits))
    return as_type(np.round(raws * steps) / steps, raws)


def late(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """All windows begin too early by a share of their length, and have silence in front."""
    by = round(share * raws.shape[1])
    delayed = np.zeros_like(raws)
    delayed[:, by:] = raws[:, : raws.shape[1] - by]
    return delayed


ALL = (
    Drift("softer", "−3, −15 dB", gain, -3.0, -15.0),
    Drift("louder", "+3, +15 dB", gain, 3.0, 15.0),
    Drift("sample rate error", "2 %, 15 %", rate_error, 0.02, 0.15),
    Drift("amplifier clips", "6, 18 dB too hot", clipping, 6.0, 18.0),
    Drift("DC offset", "0.01, 0.1 of full scale", offset, 0.01, 0.1),
    Drift("background noise", "RMS 0.005, 0.05", background, 0.005, 0.05),
    Drift("mains hum", "amplitude 0.02, 0.15", hum, 0.02, 0.15),
    Drift("muffled microphone", "pole 0.2, 0.7", muffled, 0.2, 0.7),
    Drift("packets lost", "3 %, 20 % of the sound", dropouts, 0.03, 0.2),
    Drift("fewer bits", "9, 6 bits", coarse, 7.0, 10.0),
    Drift("window late", "2 %, 15 %", late, 0.02, 0.15),
)
