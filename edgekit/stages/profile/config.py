"""Options of the profile stage."""

from __future__ import annotations

from pydantic import Field, field_validator

from edgekit.core.config import TrainingStageConfig
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task
from edgekit.training.teachers import model_file

LIBRARIES = ("numpy", "torch", "safetensors", *model_file.LIBRARIES)


class ProfileConfig(TrainingStageConfig):
    """Options of the profile stage: how the baseline is trained, if it has no weights, and how it is measured."""

    latency_calls: int = Field(300, ge=20, le=100_000, description="timed calls of the network at batch 1")
    warmup_calls: int = Field(30, ge=1, le=10_000, description="calls before the timed ones that are not counted")
    operator_calls: int = Field(30, ge=1, le=10_000, description="calls made with the operator profilers")
    calls_per_start: int = Field(
        100_000,
        ge=1,
        description="predictions that a process makes before it is started again; 100,000 is an hour of video",
    )
    folds: int = Field(
        0,
        ge=0,
        le=20,
        description="folds of a cross-validation of the baseline, which trains it once for each; 0: none. It shows how "
        "accurate the baseline is if the validation split is small",
    )
    compiling: bool = Field(True, description="whether to time torch.compile as well, which takes about a minute")
    runtimes: bool = Field(
        True, description="whether to time the unmodified network on the runtimes of all targets as well"
    )
    timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="time limit of the session and of each conversion, seconds"
    )
    task: Task = "classification"

    @field_validator("folds")
    @classmethod
    def _not_one(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("got 1; use 2 or more folds, or 0 for none")
        return folds

    def check_consistency(self) -> None:
        """Raise ConfigError if anomalies are cross-validated, because only normal samples train such a network."""
        if self.folds and self.task == "anomaly":
            raise ConfigError("task and profile.folds disagree: anomalies are not cross-validated; leave folds out")
