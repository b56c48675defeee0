"""Static costs of a network, counted without timing it: parameters, multiply-adds and bytes moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from edgekit.models.files.as_module import NOTHING, FileModule


@dataclass(frozen=True)
class Cost:
    """Costs of one call at batch 1.

    `activation_bytes` are the bytes that all leaf layers read and write, in float32, and `layers` is the number of
    calls of leaf layers. `macs` is half of PyTorch's own FLOP count, which does not include recurrent layers. The costs
    of a model of another framework are those that were counted when the file was first opened.
    """

    parameters: int
    macs: int
    weight_bytes: int
    activation_bytes: int
    layers: int
    nonzero_parameters: int


def cost(module: nn.Module, input_shape: tuple[int, ...], ids: bool = False) -> Cost:
    """Count the costs by running the module once on zeros; with `ids`, the zeros are token ids (int32)."""
    rows = layer_costs(module, input_shape, ids)
    parameters = list(module.parameters())
    foreign = [part.counted for part in module.modules() if isinstance(part, FileModule)]
    return Cost(
        parameters=sum(p.numel() for p in parameters) + sum(each.parameters for each in foreign),
        macs=sum(row.macs for row in rows),
        weight_bytes=sum(p.nbytes for p in parameters) + sum(each.weight_bytes for each in foreign),
        activation_bytes=sum(row.activation_bytes for row in rows),
        layers=sum(row.calls for row in rows),
        nonzero_parameters=sum(int(torch.count_nonzero(p)) for p in parameters)
        + sum(each.parameters for each in foreign),
    )


@dataclass(frozen=True)
class LayerCost:
    """One leaf layer in one call of the network at batch 1.

    `weight_bytes` counts the weights, in float32, once for each of the layer's `calls`.
    """

    layer: str
    kind: str
    calls: int = 0
    macs: int = 0
    weight_bytes: int = 0
    activation_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the layer's inputs, weights and outputs."""
        return self.weight_bytes + self.activation_bytes


OUTSIDE = "outside layers"
"""The row for operations outside leaf layers, such as functions called in `forward`. Its bytes are not counted."""


def layer_costs(module: nn.Module, input_shape: tuple[int, ...], ids: bool = False) -> list[LayerCost]:
    """Return the cost of every leaf layer that a call reaches, in the order of execution.

    A layer that is called twice has one row with the sum of both calls. The last row is `OUTSIDE`, so that the
    multiply-adds add up to those of the network.
    """
    rows: dict[str, LayerCost] = {}
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    open_flops: list[int] = []
    with torch.no_grad(), FlopCounterMode(display=False) as flops:

        def before(_: nn.Module, __: Any) -> None:
            open_flops.append(flops.get_total_flops())

        def after(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            row = rows.get(name, LayerCost(name, type(layer).__name__))
            counted = layer.counted if isinstance(layer, FileModule) else NOTHING
            rows[name] = replace(
                row,
                calls=row.calls + 1,
                macs=row.macs + (flops.get_total_flops() - open_flops.pop()) // 2 + counted.macs,
                weight_bytes=row.weight_bytes + sum(p.nbytes for p in layer.parameters()) + counted.weight_bytes,
                activation_bytes=row.activation_bytes
                + sum(x.nbytes for x in (*inputs, output) if isinstance(x, torch.Tensor)),
            )

        hooks = []
        for name, layer in module.named_modules():
            if not list(layer.children()):
                hooks.append(layer.register_forward_pre_hook(before))
                hooks.append(layer.register_forward_hook(partial(_report_call, after, name)))
        was_training = module.training
        module.eval()
        try:
            module(torch.zeros(1, *input_shape, dtype=torch.int32 if ids else torch.float32, device=device))
        finally:
            for hook in hooks:
                hook.remove()
            module.train(was_training)
    inside = sum(part.counted.macs for part in module.modules() if isinstance(part, FileModule))
    macs = flops.get_total_flops() // 2 + inside - sum(row.macs for row in rows.values())
    return [*rows.values(), LayerCost(OUTSIDE, "", macs=macs)]


def _report_call(
    callback: Callable[..., None], name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any
) -> None:
    callback(name, layer, inputs, output)
