"""Options of the profile stage."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.config import StageConfig, TrainOptions
from edgekit.training.teachers import model_file as teachers

LIBRARIES = ("numpy", "torch", "safetensors", *teachers.LIBRARIES)


class Config(StageConfig, TrainOptions):
    """How the baseline is trained, if it is, and how long it is measured."""

    latency_calls: int = Field(300, ge=20, le=100_000, description="timed calls at batch 1")
    warmup_calls: int = Field(30, ge=1, le=10_000, description="calls before the clock starts")
    operator_calls: int = Field(30, ge=1, le=10_000, description="calls under the operator profilers")
    calls_per_start: int = Field(100_000, ge=1, description="answers between two starts: 100,000 is an hour of video")
    compiling: bool = Field(True, description="torch.compile too, which takes a minute")
    runtimes: bool = Field(True, description="the converters' runtimes too, as the network comes")
    timeout_s: float = Field(600.0, gt=0, le=86_400, description="limit for the session, and for each conversion")
