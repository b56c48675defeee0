"""Train a small student network with the help of a teacher, with one or several losses.

If the config names several `candidates`, each is timed untrained on every target, and the most accurate one within the
budget becomes the student. The student is also trained with the labels alone, which shows what the teacher adds; losses
that add nothing are rejected. With `lone_student: false`, this comparison is left out.

The artifact holds `model/` (the student that is best on validation), `teacher/` (unless the teacher is the baseline),
and `decision.json`.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.distill.config import LIBRARIES, DistillConfig

__all__ = ["LIBRARIES", "DistillConfig", "run"]


def run(source: Artifact, data: Data, config: DistillConfig, out: Path) -> Artifact:
    """Train the student and seal the artifact in `out`."""
    from edgekit.stages.distill.stage import distill

    return distill(source, data, config, out)
