"""Take all measurements of the baseline, and diagnose it."""

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
from edgekit.stages.profile.diagnosis import ProfileMeasurements, diagnose, forecast
from edgekit.stages.profile.roofline import measure_machine, roofline
from edgekit.stages.profile.runtimes import CONFIDENCE, ROUNDS


def operator_table(module: nn.Module, data: Data, preprocess: list[dict[str, Any]], calls: int) -> list[Operator]:
    """Return the calls and the self time in ms of each operator in one inference, slowest first.

    An operator may call others. For example, the network calls `conv2d`, which calls `convolution`, and so on down to
    the kernel. Each of these has a row of its own, but only the calls that the network itself makes are counted in
    `dispatched`.
    """
    x = eager_input(data.validation.x[:1], preprocess)
    with quiet_native(), single_thread(), torch.inference_mode():
        for _ in range(3):
            module(x)
        with torch_profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            for _ in range(calls):
                module(x)
    dispatched = Counter(event.key for event in profiler.events() if event.cpu_parent is None)
    rows = [
        {
            "operator": event.key.removeprefix("aten::"),
            "calls": event.count / calls,
            "dispatched": dispatched[event.key] / calls,
            "self_ms": event.self_cpu_time_total / 1000 / calls,
        }
        for event in profiler.key_averages()
        if event.self_cpu_time_total > 0
    ]
    total_ms = sum(row["self_ms"] for row in rows)
    table = [cast("Operator", {**row, "share": row["self_ms"] / total_ms}) for row in rows]
    return sorted(table, key=lambda row: row["self_ms"], reverse=True)


SAMPLES = 256
"""Number of validation samples that are requested in turn. There are so many that no sample is still in a cache of the
processor when its turn comes again."""
SINGLE_THREAD: ThreadGain = {"threads": 1, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
"""The result on a machine with one core, and for models of other frameworks, which are opened with one thread."""


@lane.measuring()
def measure(
    module: nn.Module, folder: Path, spec: ModelSpec, cost: Cost, data: Data, config: ProfileConfig
) -> dict[str, Any]:
    """Take all measurements and return them as the evidence of the profile.

    The other modules of this package describe the parts of the evidence. `folder` holds the saved network.
    """
    samples = data.validation.x[:SAMPLES]
    x = eager_input(samples[:1], spec.preprocess)
    with progress.step("timing one session, end to end"), conditions.ConditionsRecorder(children=True) as recorder:
        session_result = session.measure(folder, samples, config.latency_calls, config.warmup_calls, config.timeout_s)
        recorder.sample()
        operators = operator_table(module, data, spec.preprocess, config.operator_calls) if spec.is_torch else []
        machine = measure_machine()
    with progress.step("timing the network on every runtime"):
        runtime_times, operators_by_target, noise_reasons = runtimes.measure(
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
        threads = thread_speedup(module, x.numpy(), config.latency_calls) if spec.is_torch else SINGLE_THREAD
        call_ms = None if spec.is_torch else runtime_times[0]["p50_ms"]
        layers = roofline(module, x, machine, config.operator_calls, call_ms)
    measurements = ProfileMeasurements(
        latency=session_result["latency"],
        session=session_result["session"],
        operators=operators,
        runtimes=runtime_times,
        threads=threads,
        machine=machine,
        cost=cost,
        layers=layers,
        calls_per_start=config.calls_per_start,
    )
    diagnosis = diagnose(measurements)
    conditions_record = conditions.to_record(recorder.result())
    conditions_record["disturbed"] += [f"runtimes: {reason}" for reason in noise_reasons]
    return {
        **session_result,
        "operators": operators,
        "inside": operators_by_target,
        "ways": runtime_times,
        "threads": threads,
        "layers": layers,
        "machine": machine,
        "forecast": forecast(measurements),
        "diagnosis": diagnosis,
        "conditions": {**machine_facts(), **conditions_record},
    }


def thread_speedup(module: nn.Module, x: np.ndarray, calls: int) -> ThreadGain:
    """Return the number of cores, and the speed-up of a call with as many threads over a call with one thread.

    The speed-up comes with its confidence interval. On a machine with one core it is 1.
    """
    cores = available_cores()
    if cores == 1:
        return SINGLE_THREAD
    threads_before = torch.get_num_threads()
    try:
        samples_ms = time_interleaved(
            {"one": _with_threads(1, eager_call(module, x)), "all": _with_threads(cores, eager_call(module, x))},
            ROUNDS,
            max(1, calls // ROUNDS),
            2,
        )
    finally:
        torch.set_num_threads(threads_before)
    speedup = intervals.ratio_interval(samples_ms["one"], samples_ms["all"], ROUNDS, CONFIDENCE)
    return {"threads": cores, "speedup": speedup.ratio, "speedup_low": speedup.low, "speedup_high": speedup.high}


def _with_threads(threads: int, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)  # only in the first call of a round, which is not timed
        return call()

    return run
