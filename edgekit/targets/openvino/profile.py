"""Time the operators of an OpenVINO file by OpenVINO's performance counters.

A counter gives the *average* time of all executions since the model was compiled, in whole µs (PerfCount in the CPU
plugin). The counters are therefore read before and after the measured calls, to compute the average of these calls
alone. The time of each execution is also counted in whole µs, so an operator that takes less than one µs shows as zero.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.backends.openvino import compile_model
from edgekit.targets.jobs import ConvertedFiles, input_parts

if TYPE_CHECKING:
    from edgekit.core.schema.profile import OperatorTime

WARM_UP = 3
MIN_S = 0.1
"""The shortest measurement in seconds. Small networks need many calls, because the counters have whole µs."""


def rows(folder: Path, files: ConvertedFiles, x: np.ndarray, calls: int) -> list[OperatorTime]:
    """Return the time of each operator in the graph that the CPU plugin fused, in order."""
    import openvino

    model = next(name for name in files.names if name.endswith(".xml"))
    compiled = compile_model(openvino.Core(), folder / model, threads=1, PERF_COUNT=True)
    request = compiled.create_infer_request()
    feeds = {
        each.name: part
        for each, part in zip(files.inputs, input_parts(x, files.inputs, (folder / model).read_bytes()), strict=True)
    }
    for _ in range(WARM_UP):
        request.infer(feeds)
    kinds, cold_ms = _averages(request)
    done, until = 0, time.perf_counter() + MIN_S
    while done < calls or time.perf_counter() < until:
        request.infer(feeds)
        done += 1
    more, all_ms = _averages(request)
    return [
        {
            "operator": kind,
            "name": name,
            "self_ms": _average_of_last(cold_ms.get(name, 0.0), all_ms.get(name, 0.0), done),
        }
        for name, kind in {**kinds, **more}.items()
    ]


def _average_of_last(cold_ms: float, all_ms: float, calls: int) -> float:
    """Return the average of the last `calls`, from the averages of the warm-up and of all calls."""
    return max(0.0, all_ms * (WARM_UP + calls) - cold_ms * WARM_UP) / calls


def _averages(request: Any) -> tuple[dict[str, str], dict[str, float]]:
    """Return the kinds of the executed operators by name, and their average ms since the model was compiled."""
    import openvino

    ran = [info for info in request.get_profiling_info() if info.status == openvino.ProfilingInfo.Status.EXECUTED]
    return (
        {info.node_name: info.node_type for info in ran},
        {info.node_name: info.real_time.total_seconds() * 1e3 for info in ran},
    )
