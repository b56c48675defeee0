"""Synthetic keywords: each word is a run of tones with overtones. Six are known, a seventh is not.

No recording is used: the sound is computed. Pitch, tempo, loudness and the noise of the room differ each time.
"""

from __future__ import annotations

import numpy as np

from benchmarks.drift.drifts import sounds
from benchmarks.drift.drifts.sounds import RATE_HZ
from benchmarks.drift.subjects import Subject, manifest, network
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.preprocess import transform

SAMPLES = RATE_HZ // 2
WORDS = ("up", "down", "rise", "fall", "same", "jump", "other")
STEPS = (
    ((1.0, 1.3), (2.2, 2.2)), ((1.3, 1.0), (2.2, 2.2)), ((1.0, 1.0), (2.0, 2.6)), ((1.0, 1.0), (2.6, 2.0)),
    ((1.1, 1.1), (2.3, 2.3)), ((1.0, 1.6), (2.6, 2.0)), ((1.6, 1.2), (1.9, 2.7)),
)  # fmt: skip
"""Of each word: how the two voices move, in multiples of the speaker's pitch, from begin to end."""
MEL = {
    "step": "log_mel", "rate_hz": RATE_HZ, "window_samples": 256, "hop_samples": 200, "fft_samples": 256, "mels": 24,
    "low_hz": 60.0, "high_hz": 3800.0, "floor": 1e-6,
}  # fmt: skip
_features = transform.pipeline([MEL])


def load(quick: bool = False) -> Subject:
    """2,000 sounds that the network did not learn; 1,000 for a quick run."""
    rng = np.random.default_rng(1)
    known = len(WORDS) - 1
    learning = rng.integers(0, known, 1200)
    logits = network.learnt(features(spoken(learning, rng)), learning, (32,), rounds=25)
    classes = rng.integers(0, known, 1000 if quick else 2000)
    return Subject(
        name="words",
        what="synthetic keywords of half a second at 8 kHz, and a network of one hidden layer on log-mel",
        manifest=manifest(
            "words", RawSpec("audio", (SAMPLES,), "float32", (-1.0, 1.0), RATE_HZ), list(WORDS[:known])
        ),
        raws=spoken(classes, rng),
        classes=classes,
        unknown=spoken(np.full(400, known), rng),
        answer=lambda raws: logits(features(raws)),
        drifts=sounds.ALL,
        references=600,
    )  # fmt: skip


def features(raws: np.ndarray) -> np.ndarray:
    """Log-mel of each sound, as one vector."""
    return np.concatenate(
        [_features(part).reshape(len(part), -1) for part in np.array_split(raws, len(raws) // 64 + 1)]
    )


def spoken(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float32 (n, 4000) of the words that are asked for."""
    return np.stack([_word(STEPS[each], rng) for each in classes])


def _word(steps: tuple[tuple[float, float], ...], rng: np.random.Generator) -> np.ndarray:
    pitch, length = rng.lognormal(np.log(320), 0.18), int(rng.uniform(0.45, 0.85) * SAMPLES)
    start = int(rng.uniform(0, SAMPLES - length))
    time = np.linspace(0, 1, length)
    sound = np.zeros(length)
    for number, (begin, end) in enumerate(steps):
        tune = pitch * (begin + (end - begin) * time) * (1 + 0.01 * np.sin(2 * np.pi * 5 * time + rng.uniform(0, 6)))
        phase = 2 * np.pi * np.cumsum(tune) / RATE_HZ + rng.uniform(0, 6)
        sound += (np.sin(phase) + rng.uniform(0.2, 0.5) * np.sin(2 * phase)) / (1 + number)
    sound *= np.sin(np.pi * time) ** rng.uniform(0.3, 1.0) * 10 ** (rng.normal(-14, 3) / 20)
    whole = rng.normal(0, 10 ** (rng.normal(-46, 4) / 20), SAMPLES)
    whole[start : start + length] += sound
    return np.clip(whole, -1, 1).astype(np.float32)
