"""A clock that counts multiply-adds: what a timing decides is tested without the noise of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.measure.latency import TimedFile, TimingResult
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.stages.prune.latency import CutTime, CutTimings

ROUNDS = 12
FIXED_MACS = 10_000
"""What a call costs besides its arithmetic, so that not all that is counted is gained."""


def ticks(module: nn.Module, shape: tuple[int, ...]) -> float:
    """Milliseconds that this clock says a call takes."""
    return (cost(module, shape).macs + FIXED_MACS) / 1e6


def measure(
    models: Mapping[str, Path], _: Any, targets: Sequence[str], precisions: Sequence[str], **__: Any
) -> TimingResult:
    """In the place of `edgekit.measure.latency.time_models`."""
    found = []
    for name, folder in models.items():
        module, spec = store.load(folder)
        p50_ms = ticks(module, spec.input_shape)
        found += [
            TimedFile(name, target, precision, 100, 50, p50_ms, p50_ms, p50_ms, (p50_ms,) * ROUNDS)
            for target in targets
            for precision in precisions
        ]
    return TimingResult(found, [])


class Counter:
    """A `netadapt.Timer` that counts; groups in `never_faster` take as long however narrow they are."""

    def __init__(self, shape: tuple[int, ...], never_faster: Sequence[str] = ()) -> None:
        self.shape, self.never_faster, self.calls = shape, never_faster, 0

    def time(self, student: nn.Module, now: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> CutTimings:
        self.calls += 1
        at_first, before = ticks(student, self.shape), ticks(now, self.shape)
        rows = []
        for (group, width), module in cuts.items():
            p50_ms = before if group in self.never_faster else ticks(module, self.shape)
            share = p50_ms / before
            rows.append(CutTime(group, width, p50_ms, p50_ms / at_first, share, share * 0.999, share * 1.001))
        return CutTimings("tflite", "int8", float(np.float64(before / at_first)), rows)
