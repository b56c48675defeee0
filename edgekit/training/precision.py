"""Training in bfloat16, where the processor multiplies it: twice as many multiply-adds, and half the bytes.

The forward and the backward pass of convolutions and matrices compute in it (torch.autocast). Weights, their
gradients, the optimiser, losses, teachers and validation stay in float32. So what is stored, and what is compared with
the budget, is a float32 network. Micikevicius et al. 2018, "Mixed Precision Training"; bfloat16 has the range of
float32, so that the loss needs no scale (Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def computing_in(precision: str, module: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the module computes in that precision while it is in training mode; its answers are float32."""
    if precision == "float32":
        yield
        return
    plain, own = module.forward, vars(module).get("forward")

    def forward(*given: Any) -> Any:
        if not module.training:
            return plain(*given)
        with torch.autocast(device.type, torch.bfloat16):
            outputs = plain(*given)
        return outputs.float() if isinstance(outputs, Tensor) else [each.float() for each in outputs]

    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
