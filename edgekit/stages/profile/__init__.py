"""Profile: train or load the baseline, then measure where its time goes.

Leaves `model/` (the baseline) and `profile.json` (quality, cost); what is measured, and the diagnosis drawn from it,
is evidence.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.profile.config import LIBRARIES, ProfileConfig

__all__ = ["LIBRARIES", "ProfileConfig", "run"]


def run(source: Artifact, data: Data, config: ProfileConfig, out: Path) -> Artifact:
    """Seal the baseline and its profile in `out`."""
    from edgekit.stages.profile.stage import profile

    return profile(source, data, config, out)
