"""Options of the quantize stage."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from edgekit.core.config import Budget, TuningStageConfig
from edgekit.training.teachers import model_file

LIBRARIES: tuple[str, ...] = ("torch", "nncf", *model_file.LIBRARIES)

Recipe = Literal["minmax", "percentile", "minmax_bias", "percentile_bias"]


class QuantizeConfig(TuningStageConfig):
    """Options of the quantize stage. The training options apply to quantization-aware training (QAT).

    QAT minimizes the loss of the student that distill selected, unless `tune_with` asks for the labels alone.
    """

    epochs: int = Field(5, ge=1, le=10_000, description="passes over the train split")
    learning_rate: float = Field(0.01, gt=0, le=10, description="peak learning rate, well below that of training")
    weight_decay: float = Field(1e-4, ge=0, le=1, description="L2 penalty on the weights; decoupled with adamw")
    qat: bool = Field(True, description="whether to try quantization-aware training in addition to PTQ")
    calibration_samples: int = Field(
        200, ge=1, le=100_000, description="largest number of samples from which activation ranges are determined"
    )
    sensitivity_samples: int = Field(
        500,
        ge=1,
        le=100_000,
        description="largest number of validation samples on which the sensitivity of each layer is measured",
    )
    recipes: list[Recipe] = Field(
        default_factory=lambda: list(get_args(Recipe)),
        min_length=1,
        description="PTQ recipes to compare; a later one is used only if it is significantly better",
    )
    max_float_layers: int = Field(
        3, ge=0, le=1000, description="largest number of layers that stay in float if int8 misses the budget"
    )
    study_sizes: list[Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default_factory=lambda: [8, 32, 100],
        description="numbers of calibration samples to compare, each with two random draws",
    )
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}), description="limits of a variant")

    @field_validator("recipes", "study_sizes")
    @classmethod
    def _none_twice(cls, values: list[str | int]) -> list[str | int]:
        if len(set(values)) != len(values):
            raise ValueError(f"contains a duplicate: {values}; name each once")
        return values
