"""Validation pictures and what is said of them, as the benchmark chose them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

EXAMPLES = "evidence/examples.npz"


@dataclass(frozen=True, eq=False)
class Examples:
    """Raw pictures `x` with their `labels`; `answers` (variants, pictures, …) are those of the task's own form."""

    task: str
    classes: tuple[str, ...]
    places: list[int]
    x: np.ndarray
    labels: np.ndarray
    variants: tuple[str, ...]
    answers: np.ndarray


def examples(artifact: Artifact) -> Examples | None:
    """Of a benchmark; None where the answers of its task lie in no picture."""
    if not (artifact.path / EXAMPLES).is_file():
        return None
    with np.load(artifact.file(EXAMPLES), allow_pickle=False) as kept:
        return Examples(
            str(kept["task"]),
            tuple(kept["classes"].tolist()),
            kept["places"].tolist(),
            kept["x"],
            kept["labels"],
            tuple(kept["variants"].tolist()),
            kept["answers"],
        )
