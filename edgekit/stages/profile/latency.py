"""End-to-end latency of one call by PyTorch eager, split into preprocess, execute and postprocess."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.data import Data
from edgekit.eager import eager_input, single_thread
from edgekit.runner.bench import summary
from edgekit.stages.profile import Config

PARTS = ("preprocess", "execute", "postprocess")


def measure_latency(
    module: nn.Module, data: Data, preprocess: list[dict[str, Any]], config: Config
) -> dict[str, dict[str, float]]:
    """Percentiles in ms for `total` and each part, at batch 1 on one thread, over validation samples in turn.

    A part's `share` is its mean over the mean of the whole.
    """
    samples = data.validation.x
    clock = time.perf_counter_ns
    stamps = np.empty((config.warmup_calls + config.latency_calls, 4), dtype=np.int64)
    with single_thread(), torch.inference_mode():
        for call, row in enumerate(stamps):
            sample = samples[call % len(samples)]
            row[0] = clock()
            x = eager_input(sample[None], preprocess)
            row[1] = clock()
            scores = module(x)
            row[2] = clock()
            probabilities = torch.softmax(scores, dim=1)
            int(probabilities.argmax())
            row[3] = clock()
    stamps = stamps[config.warmup_calls :]
    parts_ms = np.diff(stamps, axis=1) / 1e6
    total_ms = (stamps[:, 3] - stamps[:, 0]) / 1e6
    result = {"total": {**summary(total_ms), "share": 1.0}}
    for name, part_ms in zip(PARTS, parts_ms.T):
        result[name] = {**summary(part_ms), "share": float(part_ms.mean() / total_ms.mean())}
    return result
