"""Predictions of the profile, each beside what was measured later."""

from __future__ import annotations

from typing import TypedDict


class PredictedSpeedup(TypedDict):
    """What was predicted of a variant, and what it achieved: speed-ups over the baseline, and their quotient."""

    name: str
    model: str
    precision: str
    target: str
    predicted: float
    achieved: float
    achieved_low: float
    achieved_high: float
    share: float
