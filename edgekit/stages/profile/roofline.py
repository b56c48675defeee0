"""Measure the roofline of this machine, and each layer's time, arithmetic intensity and limit.

The roofline model is from Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model".
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
MATRIX_SIDE = 512
"""Side of the square matrices that are multiplied: 1 MB each in float32, about the size of a second-level cache."""
STREAM_VALUES = 8 * 1024 * 1024
"""Number of float32 values that are copied: 32 MB, which is more than a core's caches hold."""


def measure_machine() -> dict[str, float]:
    """Measure multiply-adds per second in float32 and in int8, bytes per second, and the overhead of one operator."""
    with single_thread(), torch.inference_mode():
        square = torch.rand(MATRIX_SIDE, MATRIX_SIDE)
        int8_square = torch.randint(-128, 127, (MATRIX_SIDE, MATRIX_SIDE), dtype=torch.int8)
        values = torch.rand(STREAM_VALUES)
        copied = torch.empty_like(values)
        scalar = torch.zeros(1)
        fp32_s = _fastest(lambda: square @ square, 20)
        int8_s = _fastest(lambda: torch._int_mm(int8_square, int8_square), 20)
        copy_s = _fastest(lambda: copied.copy_(values), 10)
        operator_s = _fastest(lambda: [torch.relu(scalar) for _ in range(100)], 50) / 100
    return {
        "gmacs_per_s": MATRIX_SIDE**3 / fp32_s / 1e9,
        "int8_gmacs_per_s": MATRIX_SIDE**3 / int8_s / 1e9,
        "gbytes_per_s": 2 * values.nbytes / copy_s / 1e9,
        "overhead_us_per_operator": operator_s * 1e6,
    }


def _fastest(call: Callable[[], object], repeats: int) -> float:
    """Return the duration of the shortest of several runs in seconds.

    The shortest is used, because the roofline is meant to show what the machine reaches when nothing else runs on it.
    """
    call()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def roofline(
    module: nn.Module, x: torch.Tensor, machine: dict[str, float], calls: int, call_ms: float | None = None
) -> list[LayerTime]:
    """Return one row per leaf layer in the order of execution, and a last row for everything outside layers.

    `ms` is the layer's median time in a call of PyTorch eager. `least_ms` is the minimum time that the machine needs
    for the layer's multiply-adds or its bytes, whichever is longer. `roof_share` is the share of the roof that the
    layer reaches, and `bound` says what limits it: `compute` or `memory`. `intensity` is in multiply-adds per byte.
    `intensity` and `bound` are None outside layers, where bytes are not counted, and for models of other frameworks.

    PyTorch's hooks cannot see into a model of another framework. It is treated as one layer, and `call_ms` is the time
    of a call on its own interpreter.

    Raises ModelError if a layer runs for zeros but not for `x`.
    """
    costs = layer_costs(module, tuple(x.shape[1:]), not x.is_floating_point())
    if call_ms is None:
        times_ms = layer_times(module, x, calls)
    else:
        times_ms = {cost.layer: 0.0 if cost.layer == OUTSIDE else call_ms for cost in costs}
    if skipped_layers := [cost.layer for cost in costs if cost.layer not in times_ms]:
        raise ModelError(
            f"the network runs layer {skipped_layers[0]} for zeros but not for a sample of the data, so the layers "
            "that it runs depend on the input values; compute both branches, and choose between them with torch.where"
        )
    return [_row(cost, times_ms[cost.layer], machine) for cost in costs]


def layer_times(module: nn.Module, x: torch.Tensor, calls: int) -> dict[str, float]:
    """Return the median time in ms that each leaf layer takes in a call, measured by hooks before and after it.

    For a layer that is called twice, both times are added. `OUTSIDE` is the time of a call without hooks, minus the
    times of all layers.
    """
    started_ns: dict[str, int] = {}
    elapsed_ns: dict[str, int] = {}
    with single_thread(), torch.inference_mode():
        call_ms = _median_ms([_call_ns(module, x) for _ in range(WARM_UP + calls)])
        hooks = []
        for name, layer in module.named_modules():
            if list(layer.children()):
                continue

            def before(_: nn.Module, __: Any, name: str = name) -> None:
                started_ns[name] = time.perf_counter_ns()

            def after(_: nn.Module, __: Any, ___: Any, name: str = name) -> None:
                elapsed_ns[name] = elapsed_ns.get(name, 0) + time.perf_counter_ns() - started_ns[name]

            hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
        samples_ns: dict[str, list[int]] = {}
        try:
            for _ in range(WARM_UP + calls):
                elapsed_ns.clear()
                module(x)
                for name, value in elapsed_ns.items():
                    samples_ns.setdefault(name, []).append(value)
        finally:
            for hook in hooks:
                hook.remove()
    times_ms = {name: _median_ms(values) for name, values in samples_ns.items()}
    return {**times_ms, OUTSIDE: max(0.0, call_ms - sum(times_ms.values()))}


def _call_ns(module: nn.Module, x: torch.Tensor) -> int:
    started = time.perf_counter_ns()
    module(x)
    return time.perf_counter_ns() - started


def _median_ms(samples_ns: list[int]) -> float:
    return float(np.median(samples_ns[WARM_UP:])) / 1e6


def _row(cost: LayerCost, ms: float, machine: dict[str, float]) -> LayerTime:
    minimum_ms = {
        "compute": cost.macs / machine["gmacs_per_s"] / 1e6,
        "memory": cost.bytes / machine["gbytes_per_s"] / 1e6,
    }
    is_torch_layer = cost.kind != FileModule.__name__  # what takes time inside another framework's model is unknown
    intensity = cost.macs / cost.bytes if cost.bytes and is_torch_layer else None
    roof = machine["gmacs_per_s"]
    return {
        "layer": cost.layer,
        "kind": cost.kind,
        "macs": cost.macs,
        "bytes": cost.bytes,
        "intensity": intensity,
        "ms": ms,
        "least_ms": max(minimum_ms.values()),
        "gmacs_per_s": cost.macs / (ms * 1e6) if ms else 0.0,
        "roof_gmacs_per_s": roof if intensity is None else min(roof, intensity * machine["gbytes_per_s"]),
        "roof_share": max(minimum_ms.values()) / ms if ms else 0.0,
        "bound": None if intensity is None else max(minimum_ms, key=lambda side: minimum_ms[side]),
    }
