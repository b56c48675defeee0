"""What a network costs before anything is measured: parameters, multiply-adds, bytes moved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Cost:
    """Per call at batch 1. `activation_bytes` counts what every leaf layer reads and writes, in float32."""

    parameters: int
    macs: int
    weight_bytes: int
    activation_bytes: int
    layers: int
    nonzero_parameters: int


def cost(module: nn.Module, input_shape: tuple[int, ...]) -> Cost:
    """Count by running the module once on zeros; MACs are half of torch's own FLOP count."""
    was_training = module.training
    module.eval()
    device = next(module.parameters()).device
    moved = 0
    leaves = 0

    def count_bytes(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal moved, leaves
        moved += sum(x.nbytes for x in inputs if isinstance(x, torch.Tensor))
        moved += output.nbytes if isinstance(output, torch.Tensor) else 0
        leaves += 1

    hooks = [m.register_forward_hook(count_bytes) for m in module.modules() if not list(m.children())]
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as flops:
            module(torch.zeros(1, *input_shape, device=device))
    finally:
        for hook in hooks:
            hook.remove()
        module.train(was_training)
    parameters = list(module.parameters())
    return Cost(
        parameters=sum(p.numel() for p in parameters),
        macs=flops.get_total_flops() // 2,
        weight_bytes=sum(p.nbytes for p in parameters),
        activation_bytes=moved,
        layers=leaves,
        nonzero_parameters=sum(int(torch.count_nonzero(p)) for p in parameters),
    )
