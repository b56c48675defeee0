"""The plan of a serving benchmark, and the models that are served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import NotRun
from edgekit.runner import bundle as bundles
from edgekit.runner.model import open_model


@dataclass(frozen=True)
class ServingPlan:
    """`bundles` is the folder of the digits bundles. `scale` multiplies all times for which load lasts."""

    bundles: Path
    rounds: int
    scale: float = 1.0

    def digits(self, target: str) -> Path:
        """Return the bundle of a target."""
        paths = sorted(self.bundles.glob(f"digits-{target}-*.edge.zip"))
        if not paths:
            raise NotRun(f"{self.bundles} holds no digits-{target}-*.edge.zip; run: make run, or name another folder")
        return paths[-1]


def sample_of(path: Path) -> np.ndarray:
    """Return a raw sample, the bundle's first golden input."""
    opened = bundles.read(path)
    model = open_model(opened, 1, None)
    return np.ascontiguousarray(model.golden()[0][0])
