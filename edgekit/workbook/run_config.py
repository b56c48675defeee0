"""The top level of a config file."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, PrivateAttr, field_validator

from edgekit.core.config import NAME, VERSION, Budget, ModelConfig, Strict, Target, TrainingOptions
from edgekit.core.tasks import Task

Device = Literal["auto", "cpu", "cuda", "mps"]


class RunConfig(Strict):
    """The top level of a config file; the sections of the stages are checked by the stages themselves."""

    name: str = Field(pattern=NAME, description="name of the run and of its bundles")
    version: str = Field("1.0.0", pattern=VERSION, description="version of the bundles")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of every random choice")
    device: Device = Field("auto", description="device of the training; auto takes CUDA, else MPS, else the CPU")
    threads: int = Field(0, ge=0, le=256, description="threads for training; 0: all cores")
    training: TrainingOptions = Field(
        default_factory=lambda: TrainingOptions.model_validate({}), description="how every training is carried out"
    )
    task: Task = Field("classification", description="what the network is for, and so what labels and accuracy mean")
    cell_limit_s: int = Field(43_200, ge=1, le=2_592_000, description="longest time of one notebook cell, seconds")
    data: dict[str, Any] = Field(description="where the samples come from, and the options of that source")
    model: ModelConfig = Field(description="the network to optimise")
    preprocess: list[dict[str, Any]] = Field(
        default_factory=list, description="steps from a raw sample to the network's input"
    )
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}), description="limits of a variant")
    targets: list[Target] = Field(
        default_factory=lambda: list(get_args(Target)),
        min_length=1,
        description="formats to convert to, each once; one that is named must be made, and by default what can be is",
    )
    profile: dict[str, Any] = Field(default_factory=dict, description="options of the stage profile")
    distill: dict[str, Any] = Field(default_factory=dict, description="options of the stage distill")
    prune: dict[str, Any] = Field(
        default_factory=dict, description="options of the stage prune; false: nothing is pruned"
    )
    quantize: dict[str, Any] = Field(default_factory=dict, description="options of the stage quantize")
    convert: dict[str, Any] = Field(default_factory=dict, description="options of the stage convert")
    benchmark: dict[str, Any] = Field(default_factory=dict, description="options of the stage benchmark")
    bundle: dict[str, Any] = Field(default_factory=dict, description="options of the stage bundle")

    _targets_named: bool = PrivateAttr(True)  # kept apart, because a copy of the model marks every field as set

    def model_post_init(self, _: Any) -> None:
        self._targets_named = "targets" in self.model_fields_set

    @property
    def targets_named(self) -> bool:
        """Whether the user wrote `targets`: then each of them is a demand, and otherwise a wish."""
        return self._targets_named

    @field_validator("prune", mode="before")
    @classmethod
    def _off(cls, section: Any) -> Any:
        return {"enabled": False} if section is False else section

    @field_validator("targets")
    @classmethod
    def _no_target_twice(cls, targets: list[Target]) -> list[Target]:
        if len(set(targets)) != len(targets):
            raise ValueError(f"names a target twice: {targets}; name each once")
        return targets
