"""Synthetic windows of a sensor of motion: three accelerations and three rates of turning, 2 s at 25 Hz.

No recording is used: each activity is a sum of waves with its own step rate and posture. Four are known, a fifth is
not.
"""

from __future__ import annotations

import numpy as np

from benchmarks.drift.drifts import windows
from benchmarks.drift.subjects import Subject, manifest, network
from edgekit.runner.bundle.manifest import RawSpec

TIME, RATE_HZ = 50, 25
COLUMNS = ("ax", "ay", "az", "gx", "gy", "gz")
ACTIVITIES = ("rest", "walk", "run", "stairs", "cycling")
STEP_HZ = (0.3, 1.8, 2.7, 1.6, 1.2)
SWING = (
    (0.03, 0.03, 0.03, 0.03, 0.03, 0.03), (0.25, 0.15, 0.3, 0.4, 0.2, 0.15), (0.6, 0.35, 0.9, 0.8, 0.4, 0.3),
    (0.3, 0.2, 0.35, 0.35, 0.35, 0.15), (0.12, 0.3, 0.12, 0.7, 0.1, 0.1),
)  # fmt: skip
POSTURE = ((0.1, 0.1, 0.98), (0.2, 0.0, 0.95), (0.3, 0.05, 0.95), (0.35, 0.0, 0.9), (0.6, 0.0, 0.75))


def load(quick: bool = False) -> Subject:
    """4,000 windows that the network did not learn; 1,000 for a quick run."""
    rng = np.random.default_rng(2)
    known = len(ACTIVITIES) - 1
    learning = rng.integers(0, known, 1500)
    logits = network.learnt(features(moved(learning, rng)), learning, (32,), rounds=30)
    classes = rng.integers(0, known, 1000 if quick else 4000)
    spec = RawSpec("window", (TIME, len(COLUMNS)), "float32", (-windows.LIMIT, windows.LIMIT), columns=COLUMNS)
    return Subject(
        name="motion",
        what="synthetic windows of three accelerations and three rates of turning, and a network of one hidden layer",
        manifest=manifest("motion", spec, list(ACTIVITIES[:known])),
        raws=moved(classes, rng),
        classes=classes,
        unknown=moved(np.full(400, known), rng),
        answer=lambda raws: logits(features(raws)),
        drifts=windows.ALL,
        references=800,
    )


def features(raws: np.ndarray) -> np.ndarray:
    """Means, spreads, and how the channels go together and along: what such networks are usually given."""
    mean = raws.mean(1)
    swing = raws - mean[:, None]
    together = np.einsum("nti,ntj->nij", swing, swing).reshape(len(raws), -1) / raws.shape[1]
    waves = np.abs(np.fft.rfft(swing, axis=1))[:, 1:10].reshape(len(raws), -1) / raws.shape[1]
    return np.concatenate([mean, swing.std(1), together, waves], axis=1)


def moved(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float32 (n, 50, 6) of the activities that are asked for."""
    n = len(classes)
    time = np.arange(TIME) / RATE_HZ
    rate = np.array(STEP_HZ)[classes] * rng.lognormal(0, 0.2, n)
    size = np.array(SWING)[classes] * rng.lognormal(0, 0.4, (n, 1)) * rng.lognormal(0, 0.1, (n, len(COLUMNS)))
    posture = np.concatenate([np.array(POSTURE)[classes], np.zeros((n, 3))], axis=1) + rng.normal(0, 0.15, (n, 6))
    phase = (
        rng.uniform(0, 2 * np.pi, (n, 1, 1)) + np.array([0.0, 1.2, 2.0, 0.5, 2.6, 1.9]) + rng.normal(0, 0.15, (n, 1, 6))
    )
    wave = np.sin(2 * np.pi * rate[:, None, None] * time[None, :, None] + phase)
    wave += 0.3 * np.sin(4 * np.pi * rate[:, None, None] * time[None, :, None] + 2 * phase)
    values = posture[:, None] + size[:, None] * wave + rng.normal(0, 0.08, (n, TIME, len(COLUMNS)))
    return np.clip(values, -windows.LIMIT, windows.LIMIT).astype(np.float32)
