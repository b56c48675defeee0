"""Every layer under the machine's roof: its arithmetic intensity, the time it took, and what holds it back.

The roofline model: Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.eager import single_thread
from edgekit.models.cost import LayerCost, layer_costs

Row = dict[str, Any]


def roofline(module: nn.Module, x: torch.Tensor, machine: dict[str, float], calls: int) -> list[Row]:
    """One row for each layer that computes, in the order of execution.

    `intensity` in multiply-adds per byte, `ms` the median time of a call by PyTorch eager, `roof_share` the rate that
    it reached over what the roof allows at that intensity, `bound` which side of the roof it stands under.
    """
    costs = layer_costs(module, tuple(x.shape[1:]))
    times_ms = layer_times(module, x, calls)
    return [_row(cost, times_ms[cost.layer], machine) for cost in costs if cost.macs]


def layer_times(module: nn.Module, x: torch.Tensor, calls: int) -> dict[str, float]:
    """Median milliseconds of a call of every leaf layer, by hooks before and behind it."""
    began: dict[str, int] = {}
    taken: dict[str, list[int]] = {}
    hooks = []
    for name, layer in module.named_modules():
        if list(layer.children()):
            continue

        def before(_: nn.Module, __: Any, name: str = name) -> None:
            began[name] = time.perf_counter_ns()

        def behind(_: nn.Module, __: Any, ___: Any, name: str = name) -> None:
            taken.setdefault(name, []).append(time.perf_counter_ns() - began[name])

        hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(behind)]
    try:
        with single_thread(), torch.inference_mode():
            for _ in range(calls):
                module(x)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: float(np.median(values)) / 1e6 for name, values in taken.items()}


def _row(cost: LayerCost, ms: float, machine: dict[str, float]) -> Row:
    intensity = cost.macs / cost.bytes
    under_bandwidth = intensity * machine["gbytes_per_s"]
    roof = min(machine["gmacs_per_s"], under_bandwidth)
    reached = cost.macs / (ms * 1e6)
    return {
        "layer": cost.layer,
        "kind": cost.kind,
        "macs": cost.macs,
        "bytes": cost.bytes,
        "intensity": intensity,
        "ms": ms,
        "gmacs_per_s": reached,
        "roof_gmacs_per_s": roof,
        "roof_share": reached / roof,
        "bound": "compute" if under_bandwidth >= machine["gmacs_per_s"] else "memory",
    }
