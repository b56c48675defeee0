"""Quantization-aware fine-tuning: the quantized network trained on, weights and ranges, taught by the baseline."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import nn

from edgekit import train
from edgekit.models.quantized import float_state

if TYPE_CHECKING:
    from edgekit.data import Data
    from edgekit.stages.quantize import Config


def tune(
    quantized: nn.Module, teacher: nn.Module, data: Data, preprocess: list[dict[str, Any]], config: Config
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A tuned copy of `quantized`, and its epochs as rows."""
    tuned = copy.deepcopy(quantized)
    history = train.fit(
        tuned,
        data,
        preprocess,
        config,
        seed=config.seed,
        device=config.device,
        threads=config.threads,
        teacher=teacher,
        temperature=config.temperature,
        alpha=config.alpha,
    )
    return tuned, [asdict(epoch) for epoch in history.epochs]


def tuned_float(module: nn.Module, tuned: nn.Module) -> nn.Module:
    """A copy of the plain network with the tuned float weights, for converters that quantize by themselves."""
    plain = copy.deepcopy(module)
    plain.load_state_dict(float_state(tuned))
    return plain.eval()
