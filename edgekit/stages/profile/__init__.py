"""Profile: train or load the baseline, then measure where its time goes.

Leaves `model/` (the baseline) and `profile.json` (quality, cost); latencies and the diagnosis drawn from them are
evidence.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgekit.artifact import Artifact
from edgekit.config import StageConfig, TrainOptions
from edgekit.data import Data

LIBRARIES = ("numpy", "torch", "safetensors")


class Config(StageConfig, TrainOptions):
    """How the baseline is trained, if it is, and how long it is measured."""

    latency_calls: int = Field(300, ge=20, le=100_000, description="timed calls at batch 1")
    warmup_calls: int = Field(30, ge=1, le=10_000, description="calls before the clock starts")
    operator_calls: int = Field(30, ge=1, le=10_000, description="calls under the operator profiler")


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the baseline and its profile in `out`."""
    from edgekit.stages.profile.baseline import profile

    return profile(source, data, config, out)
