"""Time per operator, by torch's own profiler."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import torch
from torch import nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from edgekit.core.schema.profile import Operator
from edgekit.data import Data
from edgekit.models.eager import eager_input, single_thread
from edgekit.runner.native_stderr import quiet_native


def operator_table(module: nn.Module, data: Data, preprocess: list[dict[str, Any]], calls: int) -> list[Operator]:
    """Rows of operator, calls per inference, self time in ms per inference, share; slowest first.

    `dispatched` are those of the calls that the network makes itself: `conv2d`, say, which calls `convolution`, and so
    on down to the kernel, each with a row of its own.
    """
    x = eager_input(data.validation.x[:1], preprocess)
    with quiet_native(), single_thread(), torch.inference_mode():
        for _ in range(3):
            module(x)
        with torch_profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
            for _ in range(calls):
                module(x)
    dispatched = Counter(event.key for event in recorded.events() if event.cpu_parent is None)
    rows = [
        {
            "operator": event.key.removeprefix("aten::"),
            "calls": event.count / calls,
            "dispatched": dispatched[event.key] / calls,
            "self_ms": event.self_cpu_time_total / 1000 / calls,
        }
        for event in recorded.key_averages()
        if event.self_cpu_time_total > 0
    ]
    whole = sum(row["self_ms"] for row in rows)
    shared = [cast("Operator", {**row, "share": row["self_ms"] / whole}) for row in rows]
    return sorted(shared, key=lambda row: row["self_ms"], reverse=True)
