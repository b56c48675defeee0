"""What a network costs before anything is measured: parameters, multiply-adds, bytes moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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


@dataclass(frozen=True)
class LayerCost:
    """One leaf layer, per call at batch 1; `bytes` are those of its inputs, weights and outputs, in float32."""

    layer: str
    kind: str
    macs: int
    bytes: int


def layer_costs(module: nn.Module, input_shape: tuple[int, ...]) -> list[LayerCost]:
    """Every leaf layer that a call reaches, in the order of execution; of one that is called twice, both together."""
    found: dict[str, LayerCost] = {}
    device = next(module.parameters()).device
    open_flops: list[int] = []
    with torch.no_grad(), FlopCounterMode(display=False) as flops:

        def before(_: nn.Module, __: Any) -> None:
            open_flops.append(flops.get_total_flops())

        def behind(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            macs = (flops.get_total_flops() - open_flops.pop()) // 2
            tensors = [x for x in (*inputs, output, *layer.parameters()) if isinstance(x, torch.Tensor)]
            moved = sum(x.nbytes for x in tensors)
            known = found.get(name, LayerCost(name, type(layer).__name__, 0, 0))
            found[name] = LayerCost(name, known.kind, known.macs + macs, known.bytes + moved)

        hooks = []
        for name, layer in module.named_modules():
            if not list(layer.children()):
                hooks.append(layer.register_forward_pre_hook(before))
                hooks.append(layer.register_forward_hook(partial(_told, behind, name)))
        was_training = module.training
        module.eval()
        try:
            module(torch.zeros(1, *input_shape, device=device))
        finally:
            for hook in hooks:
                hook.remove()
            module.train(was_training)
    return list(found.values())


def _told(tell: Callable[..., None], name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    tell(name, layer, inputs, output)
