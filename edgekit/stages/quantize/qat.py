"""Quantization-aware training: fine-tune the weights and ranges of a quantized network."""

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
    from edgekit.stages.quantize.config import QuantizeConfig
    from edgekit.training.objective import Distillation
    from edgekit.training.resume import ResumeFolder


def tune(
    quantized: nn.Module,
    distillation: Distillation | None,
    data: Data,
    preprocess: list[dict[str, Any]],
    config: QuantizeConfig,
    resume_folder: ResumeFolder | None = None,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Fine-tune a copy of `quantized`, on the labels alone if `distillation` is None.

    With a `resume_folder`, an interrupted training continues from its last checkpoint.

    Returns the tuned copy and a record for each epoch.
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
            # bfloat16 is too coarse here: it is hardly finer than the 256 levels that are learned
            training=config.training.model_copy(update={"precision": "float32"}),
            distillation=distillation,
            resume=resume_folder.checkpoint("qat") if resume_folder else None,
        )
    return tuned, [asdict(epoch) for epoch in history.epochs]


def without_bias_correction(recipe: Quantization) -> Quantization:
    """Return the recipe without bias correction, for a network after QAT.

    Correcting the biases of such a network would partly undo the tuning.
    """
    return replace(recipe, bias_correction=False)


def with_tuned_weights(module: nn.Module, tuned: nn.Module) -> nn.Module:
    """Return a copy of the float network with the tuned weights, for converters that quantize by themselves."""
    plain = copy.deepcopy(module)
    plain.load_state_dict(float_state(tuned))
    return plain.eval()
