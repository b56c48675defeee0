"""Everything that is measured on the baseline, and the diagnosis drawn from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from edgekit.core import progress
from edgekit.core.config import available_cores
from edgekit.core.schema.profile import Operator, ThreadGain
from edgekit.data import Data
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import machine_facts, time_interleaved
from edgekit.measure import lane
from edgekit.models.cost import Cost
from edgekit.models.eager import eager_call, eager_input, single_thread
from edgekit.models.store import ModelSpec
from edgekit.runner.native_stderr import quiet_native
from edgekit.stages.profile import runtimes, session
from edgekit.stages.profile.config import ProfileConfig
from edgekit.stages.profile.diagnosis import Measured, diagnose, forecast
from edgekit.stages.profile.roofline import measure_machine, roofline
from edgekit.stages.profile.runtimes import CONFIDENCE, ROUNDS


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


SAMPLES = 256
"""Of validation, asked for in turn: enough that none is in a cache because it was there a moment ago."""
ONE_THREAD: ThreadGain = {"threads": 1, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
"""Where there is one core, and of a model of another framework, which is opened for one thread."""


@lane.measuring()
def measure(
    module: nn.Module, folder: Path, spec: ModelSpec, cost: Cost, data: Data, config: ProfileConfig
) -> dict[str, Any]:
    """The evidence of the profile: see the modules beside this one for each part. `folder` holds the saved network."""
    samples = data.validation.x[:SAMPLES]
    x = eager_input(samples[:1], spec.preprocess)
    with progress.step("timing one session, end to end"), conditions.ConditionsRecorder(children=True) as watch:
        ends = session.measure(folder, samples, config.latency_calls, config.warmup_calls, config.timeout_s)
        watch.sample()
        operators = operator_table(module, data, spec.preprocess, config.operator_calls) if spec.is_torch else []
        ceilings = measure_machine()
    with progress.step("timing the network on every runtime"):
        ways, inside, beside = runtimes.measure(
            module,
            folder,
            x.numpy(),
            config.latency_calls,
            config.operator_calls,
            compiling=config.compiling,
            runtimes=config.runtimes,
            timeout_s=config.timeout_s,
        )
    with progress.step("timing threads and layers"):
        more = thread_speedup(module, x.numpy(), config.latency_calls) if spec.is_torch else ONE_THREAD
        whole_ms = None if spec.is_torch else ways[0]["p50_ms"]
        layers = roofline(module, x, ceilings, config.operator_calls, whole_ms)
    found = Measured(
        latency=ends["latency"],
        session=ends["session"],
        operators=operators,
        ways=ways,
        threads=more,
        machine=ceilings,
        cost=cost,
        layers=layers,
        calls_per_start=config.calls_per_start,
    )
    diagnosis = diagnose(found)
    seen = conditions.to_record(watch.result())
    seen["disturbed"] += [f"runtimes: {reason}" for reason in beside]
    return {
        **ends,
        "operators": operators,
        "inside": inside,
        "ways": ways,
        "threads": more,
        "layers": layers,
        "machine": ceilings,
        "forecast": forecast(found),
        "diagnosis": diagnosis,
        "conditions": {**machine_facts(), **seen},
    }


def thread_speedup(module: nn.Module, x: np.ndarray, calls: int) -> ThreadGain:
    """`threads` and how many times faster they are than one, with the interval; 1 where there is one core."""
    most = available_cores()
    if most == 1:
        return ONE_THREAD
    before = torch.get_num_threads()
    try:
        samples_ms = time_interleaved(
            {"one": _on(1, eager_call(module, x)), "all": _on(most, eager_call(module, x))},
            ROUNDS,
            max(1, calls // ROUNDS),
            2,
        )
    finally:
        torch.set_num_threads(before)
    found = intervals.ratio_interval(samples_ms["one"], samples_ms["all"], ROUNDS, CONFIDENCE)
    return {"threads": most, "speedup": found.ratio, "speedup_low": found.low, "speedup_high": found.high}


def _on(threads: int, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)  # the first call of a turn, which is never timed
        return call()

    return run
