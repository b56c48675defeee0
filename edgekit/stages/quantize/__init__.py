"""Int8 in simulation: PTQ recipes compete, QAT tunes the best, and the worst layers stay in float where neither fits.

Reads the model of the source stage and the baseline. Leaves `model/` (float weights for the converters to quantize),
`nncf/` (the chosen network with its quantizers), `decision.json` (what the converters are to do, every recipe and step
with its figures), `sensitivity.json`, `history.json` (QAT's epochs), `calibration.json` (what the choice of samples
changes) and `histograms.json` (values of two layers before and after).
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.quantize.config import LIBRARIES, Config

__all__ = ["LIBRARIES", "Config", "run"]


def run(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """Quantize every way, measure on the validation split, choose, seal."""
    from edgekit.stages.quantize.stage import quantize

    return quantize(source, data, config, out)
