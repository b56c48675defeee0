"""One run of LoadGen against one callable, in this process.

An answer is given inside LoadGen's own call, by one worker, as on the device: LoadGen allows for that ("it may block
and signal completion on the current stack", system_under_test.h) and no thread of ours competes for the interpreter.
In `server` the next query is then issued late while one is being answered; its latency still runs from its scheduled
arrival, as LoadGen's does, for LoadGen's trace has both. That trace takes 650 bytes a query, so it is written there
only; elsewhere the intended start is the actual one, and our own stamps record it without the cost of the binding.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlperf_loadgen as loadgen
import numpy as np

from edgekit.device.hardware import health
from edgekit.device.measure import conditions, soak
from edgekit.measure.load import loadgen_logs
from edgekit.measure.load.percentiles import noise, percentiles
from edgekit.measure.load.scenarios import Load, LoadResult

DEFAULT_RATE_SHARE = 0.5
"""Share of the closed-loop throughput that is the default rate of `server`."""
EXPECTED_RATE_SLACK = 1.5
"""How many times faster than the closed loop a run may be before LoadGen runs out of queries."""
QUERY_BYTES = 800
"""Memory that LoadGen needs for each prepared query, and we for its stamps; 720 and 16 were measured."""
OVERLOAD_TIMEOUT = 2.0
"""An overloaded server is stopped after so many times its seconds, because it would never catch up."""
LOAD_TIMEOUT = 4.0
"""A load may take so many times what is foreseen: twice that of an overloaded server."""


@dataclass(frozen=True)
class Subject:
    """The system under load: `predict` takes one of `samples`."""

    predict: Callable[[Any], object]
    samples: Sequence[Any]

    def capacity(self, seconds: float) -> float:
        """Answers a second in a closed loop, after some to warm up; an error counts as an answer."""
        sample = self.samples[0]

        def call() -> None:
            try:
                self.predict(sample)
            except Exception:  # a model may raise anything; the load that follows counts errors and names the first
                return

        return soak.measure_capacity(call, seconds)


def run_load(load: Load, subject: Subject, capacity_per_s: float, folder: Path) -> LoadResult:
    """Run LoadGen once; its logs stay in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rate_per_s = _rate_per_s(load, capacity_per_s)
    asked, load = load, fit_to_memory(load, rate_per_s or EXPECTED_RATE_SLACK * capacity_per_s, health.memory_bytes()[1])
    settings = loadgen_settings(load, rate_per_s, capacity_per_s)
    meter = _QueryRecorder(subject)
    sut = loadgen.ConstructSUT(meter.issue, meter.flush)
    qsl = loadgen.ConstructQSL(len(subject.samples), len(subject.samples), _no_op, _no_op)
    gc.collect()
    _reset_peak_memory()
    before = health.resident_bytes()
    try:
        with conditions.ConditionsRecorder() as watch:
            # an audit.config in the current folder would change what is measured
            loadgen.StartTestWithLogSettings(
                sut, qsl, settings, log_settings(load, folder), str(folder / "no-audit.config")
            )
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
    cut = ["LoadGen prepares all queries in memory, which held no more"] if load != asked else []
    return _result(load, rate_per_s, meter, watch, before, folder, cut)


def timeout_s(load: Load, capacity_per_s: float) -> float:
    """Seconds after which no end of a load is to be expected: it lasts for its seconds and for its queries."""
    per_s = _rate_per_s(load, capacity_per_s) or capacity_per_s
    return LOAD_TIMEOUT * max(load.seconds, load.queries / per_s) + 10.0


class _QueryRecorder:
    """Answers queries and stamps each with its begin and end, nanoseconds."""

    def __init__(self, subject: Subject) -> None:
        self._predict, self._samples = subject.predict, subject.samples
        self.begun, self.ended = array("q"), array("q")
        self.errors = 0
        self.first_error: str | None = None
        self.seconds = self.cpu_s = 0.0
        self.first_bytes: int | None = None
        self.peak_bytes: int | None = None

    def issue(self, queries: Sequence[Any]) -> None:
        """LoadGen's call with one query, or with all."""
        if not self.begun:
            self.first_bytes = health.resident_bytes()
            self.cpu_s = -time.process_time()
        for query in queries:
            begun = time.perf_counter_ns()
            try:
                self._predict(self._samples[query.index])
            except Exception as error:  # the query is completed all the same, or LoadGen would wait for ever
                self.errors += 1
                self.first_error = self.first_error or f"{type(error).__name__}: {error}"[:300]
            ended = time.perf_counter_ns()
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query.id, 0, 0)])
            self.begun.append(begun)
            self.ended.append(ended)

    def flush(self) -> None:
        """LoadGen's call after the last query, which is answered by now."""
        self.cpu_s += time.process_time()
        self.seconds = (self.ended[-1] - self.begun[0]) / 1e9
        self.peak_bytes = _peak_bytes()


def _rate_per_s(load: Load, capacity_per_s: float) -> float | None:
    """Of the arrivals; None where they follow the answers."""
    return (load.rate_per_s or DEFAULT_RATE_SHARE * capacity_per_s) if load.scenario == "server" else None


def loadgen_settings(load: Load, rate_per_s: float | None, capacity_per_s: float) -> Any:
    """LoadGen's, its own defaults where nothing is said."""
    settings = loadgen.TestSettings()
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms = max(1, round(load.seconds * 1000))
    settings.min_query_count = load.queries
    settings.qsl_rng_seed = settings.sample_index_rng_seed = settings.schedule_rng_seed = load.seed
    expected_per_s = rate_per_s or EXPECTED_RATE_SLACK * capacity_per_s
    if load.scenario == "single_stream":
        settings.scenario = loadgen.TestScenario.SingleStream
        settings.single_stream_expected_latency_ns = 1e9 / expected_per_s
    elif load.scenario == "server":
        settings.scenario = loadgen.TestScenario.Server
        settings.server_target_qps = rate_per_s
        settings.server_target_latency_ns = round(load.p99_bound_ms * 1e6)
        settings.server_target_latency_percentile = 0.99
        longest_s = OVERLOAD_TIMEOUT * max(load.seconds, load.queries / expected_per_s) + 1
        settings.max_duration_ms = round(longest_s * 1000)
    else:
        expected_per_s = capacity_per_s
        settings.scenario = loadgen.TestScenario.Offline
        settings.offline_expected_qps = expected_per_s
    return settings


def fit_to_memory(load: Load, expected_per_s: float, available_bytes: int | None) -> Load:
    """The load, cut to what LoadGen can prepare in half of the memory that is free; then it is short, and says so."""
    if available_bytes is None:
        return load
    most = max(1, int(available_bytes / 2 / QUERY_BYTES))
    return replace(load, seconds=min(load.seconds, most / expected_per_s), queries=min(load.queries, most))


def log_settings(load: Load, folder: Path) -> Any:
    """Where LoadGen writes its logs; its trace in `server` only."""
    output = loadgen.LogOutputSettings()
    output.outdir = str(folder)
    output.copy_summary_to_stdout = False
    logs = loadgen.LogSettings()
    logs.log_output = output
    logs.enable_trace = load.scenario == "server"
    return logs


def _result(
    load: Load,
    rate_per_s: float | None,
    meter: _QueryRecorder,
    watch: conditions.ConditionsRecorder,
    before: int | None,
    folder: Path,
    cut: list[str],
) -> LoadResult:
    begun, ended = np.array(meter.begun, dtype=np.int64), np.array(meter.ended, dtype=np.int64)
    service_ms = (ended - begun) / 1e6
    said = loadgen_logs.read_detail(folder)
    if load.scenario == "server":
        latencies_ms = loadgen_logs.read_latencies_ms(folder)
    else:
        latencies_ms = service_ms if load.scenario == "single_stream" else (ended - begun[0]) / 1e6
    latency = percentiles(latencies_ms, load.confidence)
    server = load.scenario == "server"
    meets = latency["p99"].value_ms <= load.p99_bound_ms and not meter.errors if server else None
    sure = bool(meets and said["early_stopping_met"]) if server else None
    why = [*_shortfalls(load, len(begun), meter.seconds, said, bool(meets) and not sure), *cut]
    # in server an answer after a pause takes longer than one after another: a spread that is no noise
    seen = watch.result(None if server else noise(service_ms))
    p50_ms, p99_ms = np.percentile(service_ms, (50, 99)).tolist()
    return LoadResult(
        scenario=load.scenario,
        seconds=meter.seconds,
        queries=len(begun),
        rate_per_s=rate_per_s,
        throughput_per_s=len(begun) / meter.seconds,
        latency=latency,
        service_p50_ms=p50_ms,
        service_p99_ms=p99_ms,
        errors=meter.errors,
        first_error=meter.first_error,
        cpu_cores=meter.cpu_s / meter.seconds,
        peak_bytes=meter.peak_bytes,
        loadgen_bytes=max(0, meter.first_bytes - before) if meter.first_bytes and before else None,
        p99_bound_ms=load.p99_bound_ms if server else None,
        meets=meets,
        sure=sure,
        short=bool(why),
        why_short="; ".join(why),
        seen=seen,
        disturbed=conditions.noise_reasons(seen),
        loadgen=said,
    )


def _shortfalls(load: Load, queries: int, seconds: float, said: dict[str, Any], unsure: bool) -> list[str]:
    least = load.least
    why = []
    if load.seconds < least.seconds:
        why.append(f"{load.seconds:g} of {least.seconds:g} s")
    elif not said["min_duration_met"]:
        why.append(f"LoadGen's minimum duration was not met, {seconds:.3g} s for {load.seconds:g} asked")
    if queries < least.queries:
        why.append(f"{queries:,} of {least.queries:,} queries")
    if unsure:
        why.append("too few queries to be 99 % sure of the p99 (LoadGen's early stopping)")
    return why


def _reset_peak_memory() -> None:
    """Let the kernel's high-water mark of resident memory begin anew; where it will not, the earlier one stays in."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return


def _peak_bytes() -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _no_op(_: Sequence[int]) -> None:
    """Samples are in memory already."""
