"""How well a network does its task on a split: its outputs become marks, which `edgekit.core.tasks` compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Answered
from edgekit.training import predict

if TYPE_CHECKING:
    from torch import nn

    from edgekit.data import Split

Steps = list[dict[str, Any]]


def score_samples(outputs: np.ndarray, split: Split, preprocess: Steps, task: str = "classification") -> Answered:
    """What the outputs (n, …), in the network's own order of axes, say of its accuracy on the split."""
    kind = tasks.named(task)
    inputs = predict.inputs(split.x, preprocess) if kind.RECONSTRUCTS else None
    found: Answered = kind.score_samples(outputs, inputs, split.y)
    return found


def finite(outputs: np.ndarray, what: str, fix: str) -> np.ndarray:
    """The outputs (n, …); ModelError, naming the first sample, where one is NaN or infinite: that is no answer."""
    bad = np.flatnonzero(~np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1))
    if len(bad):
        raise ModelError(f"{what} answers sample {bad[0]} of {len(outputs)} with NaN or infinity; {fix}")
    return outputs


def answered(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> Answered:
    """The same of a network, on the device it is on."""
    return score_samples(predict.logits(module, split.x, preprocess), split, preprocess, task)


def evaluate(module: nn.Module, split: Split, preprocess: Steps, task: str = "classification") -> float:
    """Accuracy on a split, a fraction."""
    return tasks.accuracy(answered(module, split, preprocess, task))
