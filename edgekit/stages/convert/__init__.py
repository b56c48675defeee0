"""Convert every network to every target in every precision, and check each file against the step before it.

One child process makes all precisions of a model for a target, because they share the float conversion and the time for
importing the frameworks. Several processes run at a time if the machine has the cores and the memory. Each file is then
run with the runner's own backend on validation samples, and its outputs are compared with those of the step before:
PyTorch fp32 → TARGET fp32 → TARGET fp16, int8 and so on. A variant that cannot be converted or exceeds its tolerance is
left out, together with those that are made from it. A target without any variant is an error if the config names its
targets.

The artifact holds a folder for each variant, `variants.json` and `left_out.json`. The reasons why variants were left
out are in the metrics and under `evidence/`.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.convert.config import LIBRARIES, ConvertConfig

__all__ = ["LIBRARIES", "ConvertConfig", "run"]


def run(source: Artifact, data: Data, config: ConvertConfig, out: Path) -> Artifact:
    """Convert all networks and seal the artifact in `out`.

    Raises
    ------
    ConversionError
        No target has a variant, or a target that the config names has none; the inputs, calibrated ranges or answers
        are wrong; or, with `strict`, a variant would be left out. The message names the model, target, precision or
        boundary.
    """
    from edgekit.stages.convert.stage import convert

    return convert(source, data, config, out)
