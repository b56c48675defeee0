"""Synthetic variants and timings, and the decisions about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.core.config import Budget
from edgekit.stages.benchmark.decision import Decision, decide
from edgekit.stages.benchmark.timings import Timings

ROUNDS, CALLS = 10, 5
TARGETS = ("tflite", "onnx")
EAGER_MS = 2.0
BASELINE_ACCURACY = 0.98
SAMPLES = 1_000_000
"""So many that the bound of a drop is the drop, to some hundredths of a point."""

Row = dict[str, Any]


def budget(**limits: Any) -> Budget:
    return Budget.model_validate({"accuracy_drop_pp": 1.0, **limits})


def row(name: str, accuracy: float = BASELINE_ACCURACY, size: int = 1000, samples: int = SAMPLES) -> Row:
    """A variant as it was measured: what it lost or gained against the baseline is the difference of the accuracies."""
    model, precision, target = name.split("-")
    lost = round((BASELINE_ACCURACY - accuracy) * samples)
    return {
        "name": name,
        "model": model,
        "precision": precision,
        "target": target,
        "bytes": size,
        "float_ops": [],
        "debris": {},
        "zipped_bytes": size,
        "accuracy_validation": accuracy,
        "accuracy_test": accuracy - 0.01,
        "lost": max(lost, 0),
        "gained": max(-lost, 0),
        "samples": samples,
    }


BASELINE = {
    **row("baseline-fp32-pytorch", 0.98, 100_000),
    "name": "baseline-eager",
    "interpreter": "torch 2.13.0",
}


def timings(p50_ms: dict[str, float], noise: float = 0.0, seed: int = 0, **options: Any) -> Timings:
    """Samples around each p50; `noise` is the standard deviation between rounds, as a share."""
    generator = np.random.default_rng(seed)
    samples = {
        name: np.repeat(value * np.exp(generator.normal(0, noise, ROUNDS)), CALLS)
        for name, value in {"baseline-eager": EAGER_MS, **p50_ms}.items()
    }
    return Timings(samples, **{"rounds": ROUNDS, "confidence": 0.99, "tie_margin": 0.05, **options})


def decided(
    rows: list[Row],
    p50_ms: dict[str, float],
    limits: Budget | None = None,
    recorded: dict[str, Any] | None = None,
    **measured: Any,
) -> Decision:
    return decide([BASELINE, *rows], timings(p50_ms, **measured), limits or budget(), TARGETS, recorded)


def decision_named(decision: Decision, what: str) -> Row:
    """The one decision of that name."""
    (found,) = (each for each in decision.decisions if each["decision"] == what)
    return found
