"""Prune: remove channels in steps with fine-tuning between, and, beside it, single weights by magnitude.

Leaves `model/` (structured; the last step inside the accuracy budget, or the student unpruned), `sparse/`
(unstructured, same shape with zeros) and `decision.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from edgekit.artifact import Artifact
from edgekit.config import Budget, StageConfig, TrainOptions
from edgekit.data import Data
from edgekit.teachers import file as teachers

LIBRARIES = ("numpy", "torch", "torch-pruning", "safetensors", *teachers.LIBRARIES)


class Config(StageConfig, TrainOptions):
    """How far pruning goes and in how many steps; `epochs` are those of fine-tuning after each step."""

    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    epochs: int = Field(5, ge=1, le=10_000, description="fine-tuning epochs after each step")
    learning_rate: float = Field(0.02, gt=0, le=10, description="peak rate of the fine-tuning")
    ratio: float = Field(0.5, gt=0, lt=0.95, description="share of channels to remove by the last step")
    steps: int = Field(3, ge=1, le=50, description="structured pruning steps")
    importance: Literal["l1", "l2"] = Field("l2", description="norm of a channel's weights")
    channel_multiple: int = Field(4, ge=1, le=64, description="channel counts are rounded to a multiple of this")
    sparsity: float = Field(0.7, gt=0, lt=0.99, description="share of zero weights by the last sparse step")
    sparsity_steps: int = Field(3, ge=1, le=50, description="unstructured pruning steps")
    temperature: float = Field(4.0, ge=0.1, le=100, description="softens teacher and student in fine-tuning")
    alpha: float = Field(0.9, ge=0, le=1, description="weight of the teacher's soft targets in fine-tuning")


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the pruned and the sparse student in `out`."""
    from edgekit.stages.prune.walk import prune

    return prune(source, data, config, out)
