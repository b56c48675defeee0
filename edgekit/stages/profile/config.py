"""Options of the profile stage."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.config import TrainingStageConfig
from edgekit.training.teachers import model_file

LIBRARIES = ("numpy", "torch", "safetensors", *model_file.LIBRARIES)


class ProfileConfig(TrainingStageConfig):
    """How the baseline is trained, if it is, and how long it is measured."""

    latency_calls: int = Field(300, ge=20, le=100_000, description="timed calls of the network at batch 1")
    warmup_calls: int = Field(30, ge=1, le=10_000, description="untimed calls before the timed ones")
    operator_calls: int = Field(30, ge=1, le=10_000, description="calls under the operator profilers")
    calls_per_start: int = Field(
        100_000, ge=1, description="answers between two starts of the process; 100,000 is an hour of video"
    )
    compiling: bool = Field(True, description="whether torch.compile is measured too, which takes a minute")
    runtimes: bool = Field(
        True, description="whether the unmodified network is measured on the runtimes of all targets too"
    )
    timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="longest time of the session and of each conversion, seconds"
    )
