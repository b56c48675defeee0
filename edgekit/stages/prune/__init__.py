"""Prune: remove channels in steps with fine-tuning between, and, beside it, single weights by magnitude.

Leaves `model/` (structured; the last step inside the accuracy budget, or the student unpruned), `sparse/`
(unstructured, same shape with zeros) and `decision.json`. Every step is timed on the targets as well: evidence, in
`evidence/latency.json`, on which nothing is decided here.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.prune.config import LIBRARIES, Config

__all__ = ["LIBRARIES", "Config", "run"]


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Seal the pruned and the sparse student in `out`."""
    from edgekit.stages.prune.stage import prune

    return prune(source, data, config, out)
