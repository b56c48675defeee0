"""Run LoadGen once against one callable, in this process.

Queries are answered one after the other, as on a device, inside the call in which LoadGen issues them. LoadGen allows
this ("it may block and signal completion on the current stack", system_under_test.h), and no thread of edgekit then
competes for the Python interpreter.

In the scenario `server`, a query that is due while another one is being answered is therefore issued late. Its latency
still counts from its scheduled arrival, as in LoadGen's own figures, because LoadGen's trace has both times. The trace
takes 650 bytes per query, so it is only written in that scenario. In the other scenarios no query is issued late, so
edgekit uses time stamps of its own, which do not include the cost of LoadGen's Python binding.
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
"""The default rate of `server`, as a share of the closed-loop throughput (see `Subject.capacity`)."""
EXPECTED_RATE_SLACK = 1.5
"""LoadGen prepares enough queries for a run that is this many times faster than the closed loop."""
QUERY_BYTES = 800
"""Memory for each prepared query: LoadGen was measured to need 720 bytes, and the time stamps need 16."""
OVERLOAD_TIMEOUT = 2.0
"""A server run is stopped after this many times its planned seconds, because an overloaded one would never catch up."""
LOAD_TIMEOUT = 4.0
"""A load may take this many times the expected time: twice as long as `OVERLOAD_TIMEOUT` allows."""


@dataclass(frozen=True)
class Subject:
    """The system under test: `predict` answers one of the `samples`."""

    predict: Callable[[Any], object]
    samples: Sequence[Any]

    def capacity(self, seconds: float) -> float:
        """Answers per second in a closed loop, where each call follows the one before; an error counts as an answer."""
        sample = self.samples[0]

        def call() -> None:
            try:
                self.predict(sample)
            except Exception:  # a model may raise anything; the load run counts errors and reports the first
                return

        return soak.measure_capacity(call, seconds)


def run_load(load: Load, subject: Subject, capacity_per_s: float, folder: Path) -> LoadResult:
    """Run LoadGen once and keep its logs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rate_per_s = _rate_per_s(load, capacity_per_s)
    requested, load = (
        load,
        fit_to_memory(load, rate_per_s or EXPECTED_RATE_SLACK * capacity_per_s, health.memory_bytes()[1]),
    )
    settings = loadgen_settings(load, rate_per_s, capacity_per_s)
    recorder = _QueryRecorder(subject)
    sut = loadgen.ConstructSUT(recorder.issue, recorder.flush)
    qsl = loadgen.ConstructQSL(len(subject.samples), len(subject.samples), _no_op, _no_op)
    gc.collect()
    _reset_peak_memory()
    bytes_before = health.resident_bytes()
    try:
        with conditions.ConditionsRecorder() as conditions_recorder:
            # an audit.config in the current folder would change what is measured
            loadgen.StartTestWithLogSettings(
                sut, qsl, settings, log_settings(load, folder), str(folder / "no-audit.config")
            )
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
    shortfalls = ["LoadGen prepares all queries in memory, and more did not fit"] if load != requested else []
    return _result(load, rate_per_s, recorder, conditions_recorder, bytes_before, folder, shortfalls)


def timeout_s(load: Load, capacity_per_s: float) -> float:
    """The time limit of a load in seconds, from the seconds and the queries that it has to run."""
    per_s = _rate_per_s(load, capacity_per_s) or capacity_per_s
    return LOAD_TIMEOUT * max(load.seconds, load.queries / per_s) + 10.0


class _QueryRecorder:
    """Answers queries and records the start and end of each, in nanoseconds."""

    def __init__(self, subject: Subject) -> None:
        self._predict, self._samples = subject.predict, subject.samples
        self.starts, self.ends = array("q"), array("q")
        self.errors = 0
        self.first_error: str | None = None
        self.seconds = self.cpu_s = 0.0
        self.first_bytes: int | None = None
        self.peak_bytes: int | None = None

    def issue(self, queries: Sequence[Any]) -> None:
        """Called by LoadGen with one query, or with all of them."""
        if not self.starts:
            self.first_bytes = health.resident_bytes()
            self.cpu_s = -time.process_time()
        for query in queries:
            start = time.perf_counter_ns()
            try:
                self._predict(self._samples[query.index])
            except Exception as error:  # the query is completed anyway, or LoadGen would wait for ever
                self.errors += 1
                self.first_error = self.first_error or f"{type(error).__name__}: {error}"[:300]
            end = time.perf_counter_ns()
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query.id, 0, 0)])
            self.starts.append(start)
            self.ends.append(end)

    def flush(self) -> None:
        """Called by LoadGen after the last query, which has been answered by then."""
        self.cpu_s += time.process_time()
        self.seconds = (self.ends[-1] - self.starts[0]) / 1e9
        self.peak_bytes = _peak_bytes()


def _rate_per_s(load: Load, capacity_per_s: float) -> float | None:
    """The rate at which queries arrive; None in the scenarios other than `server`, which have no rate."""
    return (load.rate_per_s or DEFAULT_RATE_SHARE * capacity_per_s) if load.scenario == "server" else None


def loadgen_settings(load: Load, rate_per_s: float | None, capacity_per_s: float) -> Any:
    """LoadGen's settings for a load, with its own defaults for everything else."""
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
        max_s = OVERLOAD_TIMEOUT * max(load.seconds, load.queries / expected_per_s) + 1
        settings.max_duration_ms = round(max_s * 1000)
    else:
        expected_per_s = capacity_per_s
        settings.scenario = loadgen.TestScenario.Offline
        settings.offline_expected_qps = expected_per_s
    return settings


def fit_to_memory(load: Load, expected_per_s: float, available_bytes: int | None) -> Load:
    """Shorten a load to the queries that LoadGen can prepare in half of the free memory.

    The result of a shortened load is marked as short.
    """
    if available_bytes is None:
        return load
    max_queries = max(1, int(available_bytes / 2 / QUERY_BYTES))
    return replace(
        load, seconds=min(load.seconds, max_queries / expected_per_s), queries=min(load.queries, max_queries)
    )


def log_settings(load: Load, folder: Path) -> Any:
    """Settings that make LoadGen write its logs to `folder`, and its trace only for `server`."""
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
    recorder: _QueryRecorder,
    conditions_recorder: conditions.ConditionsRecorder,
    bytes_before: int | None,
    folder: Path,
    shortfalls: list[str],
) -> LoadResult:
    starts, ends = np.array(recorder.starts, dtype=np.int64), np.array(recorder.ends, dtype=np.int64)
    service_ms = (ends - starts) / 1e6
    loadgen_log = loadgen_logs.read_detail(folder)
    if load.scenario == "server":
        latencies_ms = loadgen_logs.read_latencies_ms(folder)
    else:
        latencies_ms = service_ms if load.scenario == "single_stream" else (ends - starts[0]) / 1e6
    latency = percentiles(latencies_ms, load.confidence)
    is_server = load.scenario == "server"
    meets = latency["p99"].value_ms <= load.p99_bound_ms and not recorder.errors if is_server else None
    is_sure = bool(meets and loadgen_log["early_stopping_met"]) if is_server else None
    reasons = [*_shortfalls(load, len(starts), recorder.seconds, loadgen_log, bool(meets) and not is_sure), *shortfalls]
    # in `server`, an answer takes longer after a pause than right after another one, so the variation is not noise
    observed = conditions_recorder.result(None if is_server else noise(service_ms))
    p50_ms, p99_ms = np.percentile(service_ms, (50, 99)).tolist()
    return LoadResult(
        scenario=load.scenario,
        seconds=recorder.seconds,
        queries=len(starts),
        rate_per_s=rate_per_s,
        throughput_per_s=len(starts) / recorder.seconds,
        latency=latency,
        service_p50_ms=p50_ms,
        service_p99_ms=p99_ms,
        errors=recorder.errors,
        first_error=recorder.first_error,
        cpu_cores=recorder.cpu_s / recorder.seconds,
        peak_bytes=recorder.peak_bytes,
        loadgen_bytes=max(0, recorder.first_bytes - bytes_before) if recorder.first_bytes and bytes_before else None,
        p99_bound_ms=load.p99_bound_ms if is_server else None,
        meets=meets,
        sure=is_sure,
        short=bool(reasons),
        why_short="; ".join(reasons),
        seen=observed,
        disturbed=conditions.noise_reasons(observed),
        loadgen=loadgen_log,
    )


def _shortfalls(load: Load, queries: int, seconds: float, loadgen_log: dict[str, Any], is_unsure: bool) -> list[str]:
    minimum = load.required
    reasons = []
    if load.seconds < minimum.seconds:
        reasons.append(f"{load.seconds:g} of {minimum.seconds:g} s")
    elif not loadgen_log["min_duration_met"]:
        reasons.append(f"LoadGen's minimum duration was not met, {seconds:.3g} s of the requested {load.seconds:g}")
    if queries < minimum.queries:
        reasons.append(f"{queries:,} of {minimum.queries:,} queries")
    if is_unsure:
        reasons.append("too few queries to be 99 % sure of the p99 (LoadGen's early stopping)")
    return reasons


def _reset_peak_memory() -> None:
    """Reset the kernel's peak of resident memory. If the kernel refuses, the earlier peak remains included."""
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
    """Nothing to load: the samples are in memory already."""
