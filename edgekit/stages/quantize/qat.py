"""Quantization-aware fine-tuning: the quantized network trained on, weights and ranges, as the student was."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from edgekit.core import progress
from edgekit.models.quantized import float_state
from edgekit.targets.jobs import Quantization
from edgekit.training import fit

if TYPE_CHECKING:
    from edgekit.data import Data
    from edgekit.stages.quantize.config import Config
    from edgekit.training.objective import Distillation
    from edgekit.training.resume import ResumeFolder


def tune(
    quantized: nn.Module,
    distillation: Distillation | None,
    data: Data,
    preprocess: list[dict[str, Any]],
    config: Config,
    place: ResumeFolder | None = None,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A tuned copy of `quantized`, and its epochs as rows; no `distillation`: by labels alone.

    With a `place` it can be stopped and gone on with.
    """
    tuned = copy.deepcopy(quantized)
    with progress.step("quantization-aware training"):
        history = fit.fit(
            tuned,
            data,
            preprocess,
            config,
            seed=config.seed,
            device=config.device,
            threads=config.threads,
            # bfloat16 is hardly finer than the grid of 256 steps that is learnt here
            training=config.training.model_copy(update={"precision": "float32"}),
            distillation=distillation,
            resume=place.checkpoint("qat") if place else None,
        )
    return tuned, [asdict(epoch) for epoch in history.epochs]


def afterwards(recipe: Quantization) -> Quantization:
    """How tuned weights are quantized: correcting their biases would undo in part what the tuning made of them."""
    return replace(recipe, bias_correction=False)


def tuned_float(module: nn.Module, tuned: nn.Module) -> nn.Module:
    """A copy of the plain network with the tuned float weights, for converters that quantize by themselves."""
    plain = copy.deepcopy(module)
    plain.load_state_dict(float_state(tuned))
    return plain.eval()
