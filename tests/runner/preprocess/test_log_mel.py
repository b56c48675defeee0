"""Log-mel spectrograms: TensorFlow's figures, and the same bits from every numpy and processor."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
import pytest

from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps, transform

SPEECH = {
    "step": "log_mel", "rate_hz": 16_000, "window_samples": 480, "hop_samples": 320, "fft_samples": 512,
    "mels": 40, "low_hz": 20.0, "high_hz": 4000.0, "floor": 1e-6,
}  # fmt: skip


def sound(samples: int = 16_000, count: int = 0) -> np.ndarray:
    """Two tones, one of them rising, and a little noise; from -1 to 1."""
    generator = np.random.default_rng(samples)
    time = np.arange(samples) / 16_000
    tones = 0.5 * np.sin(2 * np.pi * 440 * time) + 0.2 * np.sin(2 * np.pi * (300 + 900 * time) * time)
    noisy = tones + generator.normal(0, 0.01, (count, samples) if count else samples)
    return noisy.astype(np.float32)


def test_the_figures_are_tensorflows() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    x = sound()
    found = transform.apply([SPEECH], x)
    assert found.shape == steps.check([SPEECH], x.shape, "float32") == (49, 40, 1)
    spectrum = tf.signal.stft(x.astype(np.float64), 480, 320, 512)
    weights = tf.signal.linear_to_mel_weight_matrix(40, 257, 16_000, 20.0, 4000.0, tf.float64)
    expected = np.log(np.tensordot(np.abs(spectrum) ** 2, weights, 1) + 1e-6)
    np.testing.assert_allclose(found[..., 0], expected, atol=2e-4)


def test_a_tone_stands_in_its_band() -> None:
    time = np.arange(16_000) / 16_000
    found = transform.apply([SPEECH], np.sin(2 * np.pi * 1000 * time).astype(np.float32))
    mel = 2595 * np.log10(1 + 1000 / 700)
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (20.0, 4000.0))
    assert abs(found[10, :, 0].argmax() - ((mel - low) / (high - low) * 41 - 1)) <= 1


def test_silence_is_the_floor_and_a_batch_is_its_samples() -> None:
    assert np.allclose(transform.apply([SPEECH], np.zeros(16_000, np.float32)), np.log(1e-6), atol=1e-5)
    x = sound(count=3)
    many = transform.apply([SPEECH], x)
    assert many.shape == (3, 49, 40, 1)
    assert all(np.array_equal(many[place], transform.apply([SPEECH], x[place])) for place in range(3))


def test_the_bits_are_the_same_everywhere() -> None:
    """The sound itself by integers, for a generator or a sine might differ."""
    state, values = 1, []
    for _ in range(16_000):
        state = (1_103_515_245 * state + 12_345) % 2**31
        values.append(state / 2**31 - 0.5)
    found = transform.apply([SPEECH], np.array(values, dtype=np.float32))
    assert hashlib.sha256(found.astype("<f4").tobytes()).hexdigest() == BITS


BITS = "12dfc3a547c92951982b0abe7d7c53a57e274ae02839c865f2e52593786c3f82"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window_samples": 20_000}, "the sample has 16000, so no window fits"),
        ({"fft_samples": 500}, "fft_samples: got 500; use a power of two from 480"),
        ({"fft_samples": 256}, "use a power of two from 480"),
        ({"mels": 0}, "mels: got 0; use a whole number above 0"),
        ({"high_hz": 9000.0}, "they must rise from 0 to at most half of rate_hz, 8000"),
        ({"floor": 0}, "floor: got 0; use a number above 0"),
        ({"low_hz": "a"}, "low_hz: got 'a'; use a number"),
    ],
)
def test_impossible_steps_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"preprocess.0. log_mel.*{message}"):
        steps.check([{**SPEECH, **change}], (16_000,), "float32")


def test_a_picture_is_no_sound() -> None:
    with pytest.raises(InputError, match="works on sounds, but the sample has shape .32, 32, 1."):
        steps.check([SPEECH], (32, 32, 1), "uint8")


def test_further_steps_see_a_picture_of_one_channel() -> None:
    chain = [SPEECH, {"step": "normalize", "mean": [-5.0], "std": [4.0]}]
    assert steps.check(chain, (16_000,), "float32") == (49, 40, 1)
    plain = transform.apply([SPEECH], sound())
    np.testing.assert_allclose(transform.apply(chain, sound()), (plain + 5) / 4, rtol=1e-5, atol=1e-6)
