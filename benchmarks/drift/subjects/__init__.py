"""What is watched: real samples, and a real model's answers to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.drift.drifts import Drift
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec


@dataclass(frozen=True)
class Subject:
    """Samples that the model never learnt, their labels, and the model.

    `raws` (n, *shape) are what the field gives while nothing has changed, `classes` (n,) their classes. `unknown` are
    samples of a class that the model does not know. `answer` gives outputs (n, labels) for raw samples.
    """

    name: str
    what: str
    manifest: Manifest
    raws: np.ndarray
    classes: np.ndarray
    unknown: np.ndarray
    answer: Callable[[np.ndarray], np.ndarray]
    drifts: tuple[Drift, ...]
    references: int
    """Validation samples that the reference is made of."""
    outputs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", self.answer(self.raws))

    def accuracy(self) -> float:
        """Share of right answers to the samples, while nothing has changed."""
        return float((self.outputs.argmax(1) == self.classes).mean())


def manifest(name: str, raw: RawSpec, labels: list[str], activation: str = "softmax") -> Manifest:
    """What a bundle of such a classifier says, as far as answers are concerned."""
    ends = TensorSpec("x", (1, *raw.shape), "float32", ""), TensorSpec("y", (1, len(labels)), "float32", "NC")
    return Manifest(
        name=name, version="0", target="onnx", variant=f"{name}-fp32-onnx", raw=raw, inputs=(ends[0],),
        outputs=(ends[1],), preprocess=[], labels=labels, model_files=["model.onnx"], golden={}, activation=activation,
    )  # fmt: skip
