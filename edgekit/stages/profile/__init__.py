"""Profile: train or load the baseline, then measure where its time goes.

Writes `model/` (the baseline) and `profile.json` (accuracy and cost). The measurements and the diagnosis based on them
are stored as evidence.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.profile.config import LIBRARIES, ProfileConfig

__all__ = ["LIBRARIES", "ProfileConfig", "run"]


def run(source: Artifact, data: Data, config: ProfileConfig, out: Path) -> Artifact:
    """Write the baseline and its profile to `out`, and return the sealed artifact."""
    from edgekit.stages.profile.stage import profile

    return profile(source, data, config, out)
