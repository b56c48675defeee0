"""Where the time goes, in words drawn from figures measured in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from edgekit.eager import single_thread
from edgekit.models.cost import Cost

NEXT_STEPS = {
    "preprocess": "make the preprocess cheaper first: resize less, decode once, keep samples as uint8",
    "postprocess": "return raw scores and take the top class only; the network is not what is slow",
    "compute": "fewer multiply-adds pay: distil into a smaller student, prune channels, run in int8",
    "memory traffic": "fewer bytes pay: fewer and narrower feature maps, int8 weights and activations",
    "call overhead": "fewer and larger operators pay: convert to a runtime that fuses layers, use a shallower student",
}


def measure_machine() -> dict[str, float]:
    """This machine's ceilings, one thread: multiply-adds and bytes per second, and the cost of one empty call."""
    with single_thread(), torch.inference_mode():
        square = torch.rand(512, 512)
        gemm_s = _fastest(lambda: square @ square, 20)
        block = torch.rand(8 * 1024 * 1024)
        target = torch.empty_like(block)
        copy_s = _fastest(lambda: target.copy_(block), 10)
        scalar = torch.zeros(1)
        empty_s = _fastest(lambda: [torch.relu(scalar) for _ in range(100)], 50) / 100
    return {
        "gmacs_per_s": 512**3 / gemm_s / 1e9,
        "gbytes_per_s": 2 * block.nbytes / copy_s / 1e9,
        "overhead_us_per_operator": empty_s * 1e6,
    }


def diagnose(
    latency: dict[str, dict[str, float]], operators: list[dict[str, Any]], spent: Cost, machine: dict[str, float]
) -> dict[str, Any]:
    """Split the mean latency into five causes; the largest gives the diagnosis its name.

    Within `execute`, the floor of each cause is what the machine's ceiling allows: MACs over its best rate, bytes over
    its bandwidth, operators times the cost of an empty one. The measured time is shared out in proportion to the
    three, a first-order estimate in the manner of the roofline model (Williams et al., 2009).
    """
    execute_ms = latency["execute"]["mean_ms"]
    dispatched = sum(row["calls"] for row in operators)
    floors_ms = {
        "compute": spent.macs / machine["gmacs_per_s"] / 1e6,
        "memory traffic": (spent.weight_bytes + spent.activation_bytes) / machine["gbytes_per_s"] / 1e6,
        "call overhead": dispatched * machine["overhead_us_per_operator"] / 1e3,
    }
    scale = execute_ms / sum(floors_ms.values())
    causes_ms = {
        "preprocess": latency["preprocess"]["mean_ms"],
        **{name: floor * scale for name, floor in floors_ms.items()},
        "postprocess": latency["postprocess"]["mean_ms"],
    }
    whole = sum(causes_ms.values())
    main = max(causes_ms, key=lambda name: causes_ms[name])
    shares = {name: value / whole for name, value in causes_ms.items()}
    text = (
        f"One call takes {latency['total']['p50_ms']:.2f} ms at p50 and {latency['total']['p99_ms']:.2f} ms at p99: "
        f"{latency['preprocess']['share']:.0%} preprocess, {latency['execute']['share']:.0%} execute, "
        f"{latency['postprocess']['share']:.0%} postprocess. "
        f"The network has {spent.macs / 1e6:.1f} M multiply-adds, moves "
        f"{(spent.weight_bytes + spent.activation_bytes) / 1e6:.1f} MB and dispatches {dispatched:.0f} operators; "
        f"at this machine's ceilings ({machine['gmacs_per_s']:.0f} GMAC/s, {machine['gbytes_per_s']:.0f} GB/s, "
        f"{machine['overhead_us_per_operator']:.1f} µs an operator) these would take "
        + ", ".join(f"{value:.2f} ms ({name})" for name, value in floors_ms.items())
        + f". The largest cause is {main} ({shares[main]:.0%} of the whole)."
    )
    return {
        "cause": main,
        "shares": shares,
        "floors_ms": floors_ms,
        "text": text,
        "next_step": NEXT_STEPS[main],
    }


def _fastest(call: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs in seconds: a ceiling is what the machine can do undisturbed."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best
