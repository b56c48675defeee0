"""Convert: every network to every target in every precision, and proof at each boundary that it still says the same.

One fresh child process makes all precisions of one model on one target, for they share the float conversion and the
seconds that the frameworks take to import; at most two run at a time. Each file is then run through the runner's own
backend on validation samples and compared with the step before: torch fp32 → TARGET fp32 → TARGET fp16, int8 and so on.
A variant that cannot be made or leaves its tolerance is left out, with what is made from it, as is a precision that a
target does not offer; a target that ends with no variant at all is an error. Leaves one folder for each variant,
`variants.json`, and `left_out.json`; the reasons stand in the metrics and under `evidence/`.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.stages.convert.config import LIBRARIES, ConvertConfig

__all__ = ["LIBRARIES", "ConvertConfig", "run"]


def run(source: Artifact, data: Data, config: ConvertConfig, out: Path) -> Artifact:
    """Seal every variant in `out`; ConversionError, and nothing is sealed, where a target ends with none.

    So it is where samples, ranges or answers around the files are wrong, and, if the config is strict, where any
    variant would be left out; the message names model, target, precision or boundary.
    """
    from edgekit.stages.convert.stage import convert

    return convert(source, data, config, out)
