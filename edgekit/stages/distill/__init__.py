"""Distill: a small student learns from the best teacher there is, by one loss or several, and by the labels alone.

Where several networks are named (`candidates`), each is timed untrained on every target, and of those within the budget
the most accurate becomes the student. Leaves `model/` (the best of the student's trainings on validation),
`teacher/` if the teacher was trained here, and `decision.json`. The training by labels alone shows what the teacher
adds, and a loss without a gain is rejected; with `lone_student: false` the best loss is kept unchallenged.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.distill.config import LIBRARIES, Config

__all__ = ["LIBRARIES", "Config", "run"]


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the student in `out`."""
    from edgekit.stages.distill.stage import distill

    return distill(source, data, config, out)
