"""Prune the student: remove whole channels in steps, and separately set single weights to zero.

The network is fine-tuned after each step. The artifact holds `model/` (structured pruning: the last step inside the
accuracy budget, or the unpruned student), `sparse/` (unstructured pruning: the same shapes with zeros) and
`decision.json`. Every step is also timed on the targets; these latencies are recorded in `evidence/latency.json` and
decide nothing here.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.prune.config import LIBRARIES, PruneConfig

__all__ = ["LIBRARIES", "PruneConfig", "run"]


def run(source: Artifact, data: Data, config: PruneConfig, out: Path) -> Artifact:
    """Prune the student of `source` in both ways and seal the artifact in `out`."""
    from edgekit.stages.prune.stage import prune

    return prune(source, data, config, out)
