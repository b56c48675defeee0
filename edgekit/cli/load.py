"""The command `edgekit load`: measure one bundle under load and print a short report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edgekit.core.errors import ConfigError, StageError
from edgekit.core.terminal_progress import show_progress
from edgekit.device.autotune import run_selftest
from edgekit.device.measure import bench
from edgekit.measure.load.launcher import LoadJob, LoadOutcome, run_loads, why_unavailable
from edgekit.measure.load.rate_search import MIN_TRIAL_QUERIES, RateSearch
from edgekit.measure.load.scenarios import MLPERF_MINIMUMS, P99_BOUND_MS, SCENARIOS, Load, LoadResult, Scenario
from edgekit.measure.load.subjects import SubjectSpec
from edgekit.report.formatting import count, milliseconds, percent
from edgekit.runner import bundle as bundles
from edgekit.runner.backends import installed_interpreters
from edgekit.runner.errors import SelftestError

TRIAL_S = 10.0
"""Duration of one trial when searching for the highest rate, in seconds."""


@dataclass(frozen=True)
class LoadRequest:
    """The options of the command. `job` raises ConfigError for options that exclude each other."""

    bundle: Path
    scenarios: tuple[str, ...] = ()
    rate_per_s: float | None = None
    seconds: float | None = None
    p99_ms: float | None = None
    max_rate: bool = False
    threads: int = 1

    def job(self) -> LoadJob:
        """Return the loads to run. Without `seconds`, each lasts as long as MLPerf requires."""
        bound_ms = P99_BOUND_MS if self.p99_ms is None else self.p99_ms
        names = self.scenarios or (("server",) if self.max_rate else SCENARIOS)
        self._check(names)
        subject = SubjectSpec(
            "edgekit.measure.load.subjects:open_bundle", {"path": str(self.bundle.resolve()), "threads": self.threads}
        )
        if self.max_rate:
            length_s = TRIAL_S if self.seconds is None else self.seconds
            return LoadJob(subject, search=Load("server", length_s, MIN_TRIAL_QUERIES, p99_bound_ms=bound_ms))
        return LoadJob(subject, tuple(self._load(name, bound_ms) for name in names))

    def _check(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in SCENARIOS:
                raise ConfigError(f"--scenario {name}: no such scenario; use one of {', '.join(SCENARIOS)}")
        if self.max_rate and self.scenarios not in ((), ("server",)):
            raise ConfigError(f"--max-rate: uses the scenario server; leave out --scenario {self.scenarios[0]}")
        if self.max_rate and self.rate_per_s is not None:
            raise ConfigError("--max-rate: finds the rate itself; leave out --rate")
        for option, value in (("--rate", self.rate_per_s), ("--p99-ms", self.p99_ms)):
            if value is not None and "server" not in names:
                raise ConfigError(f"{option} {value:g}: applies only to --scenario server, got {', '.join(names)}")

    def _load(self, name: str, bound_ms: float) -> Load:
        scenario = cast("Scenario", name)
        minimum = MLPERF_MINIMUMS[scenario]
        rate_per_s = self.rate_per_s if scenario == "server" else None
        if self.seconds is None:
            return Load(scenario, minimum.seconds, minimum.queries, rate_per_s, bound_ms)
        return Load(scenario, self.seconds, 1, rate_per_s, bound_ms)


def run(request: LoadRequest, as_json: bool, say: Callable[[str], object]) -> None:
    """Measure the bundle and print the report.

    Raises
    ------
    ConfigError
        The options exclude each other, or LoadGen is not installed.
    SelftestError
        The bundle gives wrong answers.
    StageError
        The measured process crashed.
    """
    if reason := why_unavailable():
        raise ConfigError(f"edgekit load: {reason}")
    job = request.job()
    bundle = bundles.read(request.bundle)  # read it here, so that a damaged bundle is not reported as a crashed worker
    _check_selftest(request, bundle)
    with show_progress(f"{request.bundle.name} under load"):
        outcome = run_loads(job)
    if as_json:
        say(json.dumps(_json_record(request, bundle.sha256, outcome), indent=2))
    else:
        for line in _report_lines(request, outcome):
            say(line)
    if outcome.failed:
        raise StageError(f"{request.bundle.name}: {outcome.failed}")


def _check_selftest(request: LoadRequest, bundle: bundles.Bundle) -> None:
    """Run the self-test on the interpreter that will be measured, because the speed of wrong answers is worthless."""
    interpreter = installed_interpreters(bundle.manifest.target)[0]
    report = run_selftest(request.bundle, bundle, request.threads, interpreter)
    if not report.ok:
        raise SelftestError(
            f"{request.bundle}: the outputs differ from the golden answers on {report.interpreter} "
            f"{report.version}, so it is not measured; `edgerun selftest` shows by how much"
        )


def _json_record(request: LoadRequest, sha256: str, outcome: LoadOutcome) -> dict[str, Any]:
    return {
        "bundle": str(request.bundle),
        "sha256": sha256,
        "threads": request.threads,
        "machine": bench.machine_facts(),
        "runs": [result.to_json() for result in outcome.results],
        "rate": outcome.search.to_json() if outcome.search else None,
        "failed": outcome.failed,
    }


def _report_lines(request: LoadRequest, outcome: LoadOutcome) -> Iterator[str]:
    machine = bench.machine_facts()
    yield (
        f"{request.bundle.name}, threads: {request.threads}, one worker; latency from raw sample to prediction; "
        "load generated by LoadGen"
    )
    yield f"on {machine['host']} ({machine['cpu']}, {machine['cores']} cores), Python {machine['python']}"
    for result in outcome.results:
        yield from _result_lines(result)
    if outcome.search:
        yield from _search_lines(outcome.search)


def _result_lines(result: LoadResult) -> Iterator[str]:
    rate = "" if result.rate_per_s is None else f" at {result.rate_per_s:,.1f} arrivals per s"
    yield f"{result.scenario}{rate}: {count(result.queries)} queries in {result.seconds:.1f} s"
    yield f"  answered    {result.throughput_per_s:,.1f} per s, {percent(result.error_rate)} with an error"
    if result.first_error:
        yield f"  first error {result.first_error}"
    if result.scenario != "offline":
        for name, latency in result.latency.items():
            interval = (
                "" if latency.low_ms is None else f" ({milliseconds(latency.low_ms)}–{milliseconds(latency.high_ms)})"
            )
            yield f"  {name}         {milliseconds(latency.value_ms)} ms{interval}"
    service = f"p50 {milliseconds(result.service_p50_ms)} ms, p99 {milliseconds(result.service_p99_ms)} ms"
    yield f"  service time  {service}"
    peak = "unknown" if result.peak_bytes is None else f"{result.peak_bytes / 2**20:,.0f} MiB"
    loadgen = "" if not result.loadgen_bytes else f" including {result.loadgen_bytes / 2**20:,.0f} MiB for LoadGen"
    yield f"  process     {result.cpu_cores:.2f} cores busy, peak memory {peak}{',' + loadgen if loadgen else ''}"
    if result.p99_bound_ms is not None:
        confidence = " at 99 % confidence" if result.sure else ""
        yield f"  p99 bound   {result.p99_bound_ms:g} ms: {'met' + confidence if result.meets else 'NOT met'}"
    yield from _warnings(result)


def _search_lines(search: RateSearch) -> Iterator[str]:
    for trial in search.trials:
        outcome = ("met" if trial.meets else "over") + (", disturbed" if trial.disturbed else "")
        p99 = f"p99 {milliseconds(trial.p99_ms):>8} ms"
        yield f"  {trial.reason:<8} {trial.rate_per_s:>10,.1f} per s   {p99}   {outcome}"
    if search.rate_per_s is None:
        yield f"no rate with a p99 within {search.p99_bound_ms:g} ms: {search.why}"
    else:
        yield f"highest rate with a p99 within {search.p99_bound_ms:g} ms: {search.rate_per_s:,.1f} per s; {search.why}"
    yield from _warnings(search)


def _warnings(result: LoadResult | RateSearch) -> Iterator[str]:
    """Yield lines that say why the result is not reliable."""
    if result.short:
        yield f"  SHORT       run is shorter than MLPerf requires: {result.why_short}"
    if result.disturbed:
        yield f"  DISTURBED   {'; '.join(result.disturbed)}"
