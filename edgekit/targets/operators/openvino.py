"""OpenVINO's performance counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.targets.files import Files


def rows(folder: Path, files: Files, x: np.ndarray, calls: int) -> list[dict[str, Any]]:
    """Operators as the CPU plugin fused them, in their order; what it optimised away has no row."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": 1,
        "INFERENCE_PRECISION_HINT": "f32",  # as the runner opens it
        "PERF_COUNT": True,
    }
    model = next(name for name in files.names if name.endswith(".xml"))
    request = openvino.Core().compile_model(folder / model, "CPU", settings).create_infer_request()
    given = {0: x.astype(files.input.dtype)}
    request.infer(given)
    spent: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for _ in range(calls):
        request.infer(given)
        for info in request.get_profiling_info():
            if info.status == openvino.ProfilingInfo.Status.EXECUTED:
                kinds[info.node_name] = info.node_type
                spent[info.node_name] = spent.get(info.node_name, 0.0) + info.real_time.total_seconds() * 1e3
    return [{"operator": kinds[name], "name": name, "self_ms": time / calls} for name, time in spent.items()]
