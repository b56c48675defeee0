"""How fast a training could be at most on this machine: the roofline of its layers.

A step computes each layer three times: its output, the gradient of its input, and that of its weights. So its
multiply-adds, and the bytes that it reads and writes, are about three times those of an answer. The first layer has
no gradient of its input, which is little and is neglected. Roofline: Williams, Waterman & Patterson 2009.

Seconds are processor time, divided by the threads: those of the wall where nothing else runs, and nearly the same
where much does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

PASSES = 3
SIDE, STREAM_VALUES, REPEATS = 1536, 16 * 1024 * 1024, 15


@dataclass(frozen=True)
class Machine:
    """Multiply-adds and bytes per second of all threads together, at best, in float32 and in bfloat16."""

    gmacs_per_s: float
    bfloat16_gmacs_per_s: float
    gbytes_per_s: float


def machine(threads: int) -> Machine:
    """Square matrices of 9 MB, and a copy of 64 MB."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            square = torch.rand(SIDE, SIDE)
            half = square.bfloat16()
            block = torch.rand(STREAM_VALUES)
            target = torch.empty_like(block)
            macs, gbytes = SIDE**3 / 1e9, 2 * block.nbytes / 1e9
            return Machine(
                threads * macs / _least_cpu_s(lambda: square @ square),
                threads * macs / _least_cpu_s(lambda: half @ half),
                threads * gbytes / _least_cpu_s(lambda: target.copy_(block)),
            )
    finally:
        torch.set_num_threads(before)


def samples_per_s(layers: list[list[int]], here: Machine) -> dict[str, float]:
    """The limits in float32: by multiply-adds alone, by bytes alone, and by the slower in each layer.

    layers: multiply-adds and bytes of the activations of each layer, for one answer to one sample.
    """
    computing = [PASSES * macs / here.gmacs_per_s / 1e9 for macs, _ in layers]
    moving = [PASSES * moved / here.gbytes_per_s / 1e9 for _, moved in layers]
    slower = [max(each) for each in zip(computing, moving, strict=True)]
    return {name: 1 / sum(found) for name, found in (("computing", computing), ("moving", moving), ("roof", slower))}


def _least_cpu_s(call: Callable[[], object]) -> float:
    """Of several calls, of all threads together."""
    call()
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best
