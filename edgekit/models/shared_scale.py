"""Outputs of different ranges in one tensor: in int8 the wider range sets the scale of both."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit.models.spec import ModelSpec

NOTE = (
    "boxes and logits are one output, which int8 of TFLite and ONNX gives one scale: the wider range costs the other "
    "its precision; let forward return (boxes, logits)"
)


def note(module: nn.Module, spec: ModelSpec, x: Tensor) -> str:
    """What to do about a detector that joins its two outputs; an empty text for all other networks.

    `x`: inputs (n, *input). The network is left in the mode that it was in.
    """
    if spec.task != "detection":
        return ""
    mode = module.training
    try:
        with torch.no_grad():
            return NOTE if isinstance(module.eval()(x[:1]), Tensor) else ""
    finally:
        module.train(mode)
