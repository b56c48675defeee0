"""The roofline of this machine and every layer under it: arithmetic intensity, time, and what limits it.

The roofline model: Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.core.schema.profile import LayerTime
from edgekit.models.cost import OUTSIDE, LayerCost, layer_costs
from edgekit.models.eager import single_thread
from edgekit.models.files.as_module import FileModule

WARM_UP = 3
SIDE = 512
"""Of the square matrices; 1 MB each in float32, so they stay in a second-level cache or just above it."""
STREAM_VALUES = 8 * 1024 * 1024
"""float32 values that are copied, 32 MB: more than a core's caches."""


def measure_machine() -> dict[str, float]:
    """Multiply-adds per second in float32 and in int8, bytes per second, and the cost of one empty operator."""
    with single_thread(), torch.inference_mode():
        square = torch.rand(SIDE, SIDE)
        small = torch.randint(-128, 127, (SIDE, SIDE), dtype=torch.int8)
        block = torch.rand(STREAM_VALUES)
        target = torch.empty_like(block)
        scalar = torch.zeros(1)
        fp32_s = _fastest(lambda: square @ square, 20)
        int8_s = _fastest(lambda: torch._int_mm(small, small), 20)
        copy_s = _fastest(lambda: target.copy_(block), 10)
        empty_s = _fastest(lambda: [torch.relu(scalar) for _ in range(100)], 50) / 100
    return {
        "gmacs_per_s": SIDE**3 / fp32_s / 1e9,
        "int8_gmacs_per_s": SIDE**3 / int8_s / 1e9,
        "gbytes_per_s": 2 * block.nbytes / copy_s / 1e9,
        "overhead_us_per_operator": empty_s * 1e6,
    }


def _fastest(call: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs in seconds: a ceiling is what the machine can do undisturbed."""
    call()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def roofline(
    module: nn.Module, x: torch.Tensor, machine: dict[str, float], calls: int, whole_ms: float | None = None
) -> list[LayerTime]:
    """One row for each leaf layer, in the order of execution, and a last one of what is outside layers.

    `ms` is the median of what a layer takes of a call by PyTorch eager, `least_ms` what the machine needs for its
    multiply-adds or its bytes at best, whichever is more, `roof_share` the part of the roof that it reached, `bound`
    which side of the roof it stands under: `compute` or `memory`. `intensity` is in multiply-adds per byte; it and
    `bound` are None outside layers, where nobody counts bytes, and of a model of another framework. That is one layer,
    and `whole_ms` what a call of it takes on its own interpreter, where hooks of PyTorch's see nothing.
    """
    costs = layer_costs(module, tuple(x.shape[1:]), not x.is_floating_point())
    if whole_ms is None:
        times_ms = layer_times(module, x, calls)
    else:
        times_ms = {cost.layer: 0.0 if cost.layer == OUTSIDE else whole_ms for cost in costs}
    if missed := [cost.layer for cost in costs if cost.layer not in times_ms]:
        raise ModelError(
            f"the network runs layer {missed[0]} for zeros and not for a sample of the data, so what it computes "
            "depends on the values that come in; compute both sides, and choose with torch.where"
        )
    return [_row(cost, times_ms[cost.layer], machine) for cost in costs]


def layer_times(module: nn.Module, x: torch.Tensor, calls: int) -> dict[str, float]:
    """Median milliseconds of a call that every leaf layer takes, by hooks before and behind it, and what is left.

    A layer that a call reaches twice has both times. What is left, under `OUTSIDE`, is left of a call without hooks.
    """
    began: dict[str, int] = {}
    elapsed: dict[str, int] = {}
    with single_thread(), torch.inference_mode():
        whole_ms = _median_ms([_whole(module, x) for _ in range(WARM_UP + calls)])
        hooks = []
        for name, layer in module.named_modules():
            if list(layer.children()):
                continue

            def before(_: nn.Module, __: Any, name: str = name) -> None:
                began[name] = time.perf_counter_ns()

            def behind(_: nn.Module, __: Any, ___: Any, name: str = name) -> None:
                elapsed[name] = elapsed.get(name, 0) + time.perf_counter_ns() - began[name]

            hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(behind)]
        taken: dict[str, list[int]] = {}
        try:
            for _ in range(WARM_UP + calls):
                elapsed.clear()
                module(x)
                for name, value in elapsed.items():
                    taken.setdefault(name, []).append(value)
        finally:
            for hook in hooks:
                hook.remove()
    found = {name: _median_ms(values) for name, values in taken.items()}
    return {**found, OUTSIDE: max(0.0, whole_ms - sum(found.values()))}


def _whole(module: nn.Module, x: torch.Tensor) -> int:
    began = time.perf_counter_ns()
    module(x)
    return time.perf_counter_ns() - began


def _median_ms(values: list[int]) -> float:
    return float(np.median(values[WARM_UP:])) / 1e6


def _row(cost: LayerCost, ms: float, machine: dict[str, float]) -> LayerTime:
    least_ms = {
        "compute": cost.macs / machine["gmacs_per_s"] / 1e6,
        "memory": cost.bytes / machine["gbytes_per_s"] / 1e6,
    }
    is_torch_layer = cost.kind != FileModule.__name__  # of another framework's model nobody sees what takes the time
    intensity = cost.macs / cost.bytes if cost.bytes and is_torch_layer else None
    roof = machine["gmacs_per_s"]
    return {
        "layer": cost.layer,
        "kind": cost.kind,
        "macs": cost.macs,
        "bytes": cost.bytes,
        "intensity": intensity,
        "ms": ms,
        "least_ms": max(least_ms.values()),
        "gmacs_per_s": cost.macs / (ms * 1e6) if ms else 0.0,
        "roof_gmacs_per_s": roof if intensity is None else min(roof, intensity * machine["gbytes_per_s"]),
        "roof_share": max(least_ms.values()) / ms if ms else 0.0,
        "bound": None if intensity is None else max(least_ms, key=lambda side: least_ms[side]),
    }
