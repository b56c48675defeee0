"""Profile: train or load the baseline, then measure where its time goes.

Leaves `model/` (the baseline) and `profile.json` (quality, cost); what is measured, and the diagnosis drawn from it,
is evidence.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgekit.artifact import Artifact
from edgekit.config import StageConfig, TrainOptions
from edgekit.data import Data
from edgekit.teachers import file as teachers

LIBRARIES = ("numpy", "torch", "safetensors", *teachers.LIBRARIES)


class Config(StageConfig, TrainOptions):
    """How the baseline is trained, if it is, and how long it is measured."""

    latency_calls: int = Field(300, ge=20, le=100_000, description="timed calls at batch 1")
    warmup_calls: int = Field(30, ge=1, le=10_000, description="calls before the clock starts")
    operator_calls: int = Field(30, ge=1, le=10_000, description="calls under the operator profilers")
    calls_per_start: int = Field(100_000, ge=1, description="answers between two starts: 100,000 is an hour of video")
    compiling: bool = Field(True, description="torch.compile too, which takes a minute")
    runtimes: bool = Field(True, description="the converters' runtimes too, as the network comes")
    timeout_s: float = Field(600.0, gt=0, le=86_400, description="longest time of session and conversion, in seconds")


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the baseline and its profile in `out`."""
    from edgekit.stages.profile.baseline import profile

    return profile(source, data, config, out)
