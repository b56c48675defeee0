"""Options of the bundle stage."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.config import Budget, StageConfig

LIBRARIES = ("numpy", "ai-edge-litert", "openvino", "onnxruntime")


class Config(StageConfig):
    """What the bundles are called and how many recorded answers they carry."""

    name: str = Field("model", description="name of the bundles")
    version: str = Field("1.0.0", description="version of the bundles")
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    golden_samples: int = Field(16, ge=1, le=1000, description="validation samples that are recorded as golden vectors")
    golden_tolerance_float: float = Field(
        0.005, gt=0, le=1, description="allowed difference of an output, as a share of the range of outputs"
    )
    golden_tolerance_int8: float = Field(
        0.05, gt=0, le=1, description="the same for an int8 variant, as a share of the range of outputs"
    )
    false_alarms: float = Field(
        0.01, gt=0, lt=1, description="share of normal validation samples that may be called anomalies"
    )
