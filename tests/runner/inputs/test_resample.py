"""Sounds at another rate: near to what soxr makes, and the same bits wherever it is done."""

from __future__ import annotations

import hashlib
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runner.inputs.resampling import resample, resampled_length
from tests import requirements

PAIRS = [(44_100, 16_000), (48_000, 16_000), (8000, 16_000), (16_000, 8000), (22_050, 16_000), (11_025, 8000)]
DIGESTS = {
    "44100-16000": "360b756e50e24562",
    "48000-16000": "cf51792f67a56d8f",
    "8000-16000": "efa247bf776832ad",
    "16000-8000": "6b935bece68a0bd6",
    "22050-16000": "164713bf1e32590e",
    "11025-8000": "baa07326c7537789",
    "16001-8000": "f8111f7da0e96ed0",
}
EDGE = 0.1
"""Share of a sound at each end that is not compared: outside it there is nothing, and every filter rings there."""


def tones(rate_hz: int, below_hz: float, seconds: float = 0.5) -> np.ndarray:
    moments = np.arange(round(rate_hz * seconds)) / rate_hz
    parts = [np.sin(2 * np.pi * share * below_hz * moments + share * 9) for share in (0.03, 0.21, 0.5, 0.89)]
    return (np.sum(parts, axis=0) / 8).astype(np.float32)


def snr_db(found: np.ndarray, expected: np.ndarray) -> float:
    inner = slice(int(EDGE * len(expected)), -int(EDGE * len(expected)))
    error = found[inner].astype(np.float64) - expected[inner]
    return float(10 * np.log10((expected[inner].astype(np.float64) ** 2).mean() / (error**2).mean()))


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_tones_stay_what_they_were(from_hz: int, to_hz: int) -> None:
    below_hz = min(from_hz, to_hz) / 2
    made = resample(tones(from_hz, below_hz), from_hz, to_hz)
    assert (len(made), made.dtype) == (resampled_length(from_hz // 2, from_hz, to_hz), np.float32)
    assert snr_db(made, tones(to_hz, below_hz)[: len(made)]) > 100


@pytest.mark.parametrize(("from_hz", "to_hz"), [(48_000, 16_000), (16_000, 8000), (44_100, 16_000)])
def test_tones_above_the_new_half_rate_are_gone(from_hz: int, to_hz: int) -> None:
    moments = np.arange(from_hz // 2) / from_hz
    made = resample((0.5 * np.sin(2 * np.pi * 0.6 * to_hz * moments)).astype(np.float32), from_hz, to_hz)
    inner = made[len(made) // 4 : -len(made) // 4]
    assert 20 * np.log10(np.abs(inner).max() / 0.5) < -95


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_it_is_near_to_soxr(from_hz: int, to_hz: int) -> None:
    x = tones(from_hz, min(from_hz, to_hz) / 2)
    soxr = f"aresample={to_hz}:resampler=soxr:precision=28"
    ffmpeg = requirements.program("ffmpeg")
    built = subprocess.run([ffmpeg, "-version"], capture_output=True, text=True).stdout
    requirements.condition("--enable-libsoxr" in built, "an ffmpeg that was built with soxr", required_in_ci=False)
    source = ["-f", "f32le", "-ar", str(from_hz), "-ac", "1", "-i", "-"]
    command = [ffmpeg, "-v", "error", *source, "-af", soxr, "-f", "f32le", "-"]
    done = subprocess.run(command, input=x.tobytes(), capture_output=True, check=True)
    theirs, ours = np.frombuffer(done.stdout, np.float32), resample(x, from_hz, to_hz)
    shared = min(len(theirs), len(ours))
    assert shared > 0.99 * len(ours)
    theirs, ours = theirs[:shared], ours[:shared]
    ideal = tones(to_hz, min(from_hz, to_hz) / 2)[:shared]
    # soxr's own distance from the tones is 70 dB where the rates have an odd ratio; ours is 106 dB everywhere
    assert snr_db(ours, theirs) > min(100, snr_db(theirs, ideal) - 1)
    assert snr_db(ours, theirs) > 65


def test_the_bits_are_those_of_every_machine() -> None:
    """Digests that were taken on x86-64; the suite of aarch64 finds the same."""
    found = {}
    for from_hz, to_hz in [*PAIRS, (16_001, 8000)]:
        noise = np.random.default_rng(from_hz).uniform(-1, 1, 3000).astype(np.float32)
        found[f"{from_hz}-{to_hz}"] = hashlib.sha256(resample(noise, from_hz, to_hz).tobytes()).hexdigest()[:16]
    assert found == DIGESTS


@settings(max_examples=60, deadline=None)
@given(
    from_hz=st.integers(1000, 50_000),
    to_hz=st.integers(1000, 50_000),
    samples=st.integers(1, 400),
    level=st.floats(0.01, 1.0),
)
def test_any_rates_give_a_sound_of_the_length_and_within_its_range(
    from_hz: int, to_hz: int, samples: int, level: float
) -> None:
    x = np.full(samples, np.float32(level))
    x[::2] *= -1
    made = resample(x, from_hz, to_hz)
    assert len(made) == resampled_length(samples, from_hz, to_hz) == -(-samples * to_hz // from_hz)
    assert np.isfinite(made).all() and np.abs(made).max(initial=0) <= 1


def test_a_long_sound_is_made_in_parts_that_nobody_hears() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, 160_000).astype(np.float32)
    whole = resample(x, 8000, 16_000)
    later = resample(x[80_000 - 640 :], 8000, 16_000)
    assert np.array_equal(whole[160_000 + 400 :], later[2 * 640 + 400 :])


def test_the_same_rate_changes_nothing() -> None:
    x = np.array([2.0, -3.0, np.float32(1e-40)], np.float32)
    assert resample(x, 8000, 8000) is x
