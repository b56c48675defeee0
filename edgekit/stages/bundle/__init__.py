"""Bundle: one file per target that people copy to a device, its golden vectors proven in a fresh process.

Leaves NAME-TARGET-VERSION.edge.zip for every target that has a winner, `edgerun.pyz` beside them, and
`decision.json`. What the fresh process answered is evidence.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.bundle.config import LIBRARIES, BundleConfig

__all__ = ["LIBRARIES", "BundleConfig", "run"]


def run(source: Artifact, data: Data, config: BundleConfig, out: Path) -> Artifact:
    """Seal the bundles in `out`."""
    from edgekit.stages.bundle.stage import bundle

    return bundle(source, data, config, out)
