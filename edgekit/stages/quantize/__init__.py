"""Quantize a network to int8 in simulation, by PTQ, QAT or mixed precision.

Several PTQ recipes are compared, and QAT fine-tunes the network that the best recipe gives. If neither PTQ nor QAT
meets the budget, the most sensitive layers stay in float. The stage reads the model of its source and the baseline. The
artifact holds:

- `model/`: float weights for the converters to quantize
- `nncf/`: the chosen network with its quantizers
- `decision.json`: how the converters must quantize, and the measurements of every recipe and of every step of mixed
  precision
- `sensitivity.json`: how much accuracy is lost by quantizing each layer
- `history.json`: the epochs of QAT
- `calibration.json`: the effect of the choice of calibration samples
- `histograms.json`: the values of two layers before and after quantization
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.quantize.config import LIBRARIES, QuantizeConfig

__all__ = ["LIBRARIES", "QuantizeConfig", "run"]


def run(source: Artifact, data: Data, config: QuantizeConfig, out: Path) -> Artifact:
    """Quantize the network of `source` in all ways, select one on the validation split, and seal the artifact."""
    from edgekit.stages.quantize.stage import quantize

    return quantize(source, data, config, out)
