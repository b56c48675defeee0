"""Bundle: pack one file for each target, ready to be copied to a device, and run its self-test in a fresh process.

Writes NAME-TARGET-VERSION.edge.zip for every target that has a winner, `edgerun.pyz` next to them, and
`decision.json`. The outcome of the self-tests is stored as evidence.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.bundle.config import LIBRARIES, BundleConfig

__all__ = ["LIBRARIES", "BundleConfig", "run"]


def run(source: Artifact, data: Data, config: BundleConfig, out: Path) -> Artifact:
    """Write the bundles to `out`, and return the sealed artifact."""
    from edgekit.stages.bundle.stage import bundle

    return bundle(source, data, config, out)
