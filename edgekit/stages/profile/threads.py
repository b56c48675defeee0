"""What more threads would bring: the same network by PyTorch eager on one and on all cores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from edgekit.core.config import cores
from edgekit.core.rows.profiled import ThreadGain
from edgekit.models.eager import eager_call
from edgekit.runner.measure import intervals
from edgekit.runner.measure.bench import interleaved
from edgekit.stages.profile.runtimes import CONFIDENCE, ROUNDS

ONE: ThreadGain = {"threads": 1, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
"""Where there is one core, and of a model of another framework, which is opened for one thread."""


def measure(module: nn.Module, x: np.ndarray, calls: int) -> ThreadGain:
    """`threads` and how many times faster they are than one, with the interval; 1 where there is one core."""
    most = cores()
    if most == 1:
        return ONE
    before = torch.get_num_threads()
    try:
        samples_ms = interleaved(
            {"one": _on(1, eager_call(module, x)), "all": _on(most, eager_call(module, x))},
            ROUNDS,
            max(1, calls // ROUNDS),
            2,
        )
    finally:
        torch.set_num_threads(before)
    found = intervals.ratio(samples_ms["one"], samples_ms["all"], ROUNDS, CONFIDENCE)
    return {"threads": most, "speedup": found.ratio, "speedup_low": found.low, "speedup_high": found.high}


def _on(threads: int, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)  # the first call of a turn, which is never timed
        return call()

    return run
