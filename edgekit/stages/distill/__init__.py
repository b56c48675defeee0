"""Distill: a small student learns from the baseline, and is held against the same student taught by labels alone.

Leaves `model/` (the better of the two on validation: a step that does not pay is not kept) and `decision.json`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edgekit.artifact import Artifact
from edgekit.config import NetworkConfig, StageConfig, TrainOptions
from edgekit.data import Data

LIBRARIES = ("numpy", "torch", "safetensors")


class Config(StageConfig, TrainOptions):
    """The student, and how much of its target comes from the teacher."""

    student: NetworkConfig = Field(description="the small network")
    temperature: float = Field(4.0, ge=0.1, le=100, description="softens teacher and student alike")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the soft targets; the labels get the rest")


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the student in `out`."""
    from edgekit.stages.distill.student import distill

    return distill(source, data, config, out)
