"""`edgekit load`: one bundle under load, told in a few lines."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edgekit.core.errors import ConfigError, StageError
from edgekit.measure.load.launch import Job, Outcome, drive
from edgekit.measure.load.rate import TRIAL_QUERIES, Found
from edgekit.measure.load.scenarios import MINIMUM, P99_BOUND_MS, SCENARIOS, Load, Result, Scenario
from edgekit.measure.load.subjects import Words
from edgekit.report.formatting import count, milliseconds, percent
from edgekit.runner import bundle as bundles
from edgekit.runner.autotune import prove
from edgekit.runner.backends import installed
from edgekit.runner.errors import SelftestError
from edgekit.runner.measure import bench
from edgekit.workbook.watch import Watch

TRIAL_S = 10.0
"""Of one run in the search for the highest rate."""


@dataclass(frozen=True)
class Wishes:
    """What was typed; ConfigError where it does not fit together."""

    bundle: Path
    scenarios: tuple[str, ...] = ()
    rate_per_s: float | None = None
    seconds: float | None = None
    p99_ms: float | None = None
    max_rate: bool = False
    threads: int = 1

    def job(self) -> Job:
        """What to drive it with; without `seconds`, what MLPerf asks for at least."""
        bound_ms = P99_BOUND_MS if self.p99_ms is None else self.p99_ms
        names = self.scenarios or (("server",) if self.max_rate else SCENARIOS)
        self._check(names)
        words = Words(
            "edgekit.measure.load.subjects:bundle", {"path": str(self.bundle.resolve()), "threads": self.threads}
        )
        if self.max_rate:
            length_s = TRIAL_S if self.seconds is None else self.seconds
            return Job(words, search=Load("server", length_s, TRIAL_QUERIES, p99_bound_ms=bound_ms))
        return Job(words, tuple(self._load(name, bound_ms) for name in names))

    def _check(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in SCENARIOS:
                raise ConfigError(f"--scenario {name}: no such scenario; use one of {', '.join(SCENARIOS)}")
        if self.max_rate and self.scenarios not in ((), ("server",)):
            raise ConfigError(f"--max-rate searches in server; leave out --scenario {self.scenarios[0]}")
        if self.max_rate and self.rate_per_s is not None:
            raise ConfigError("--max-rate finds the rate; leave out --rate")
        for option, value in (("--rate", self.rate_per_s), ("--p99-ms", self.p99_ms)):
            if value is not None and "server" not in names:
                raise ConfigError(f"{option} {value:g}: belongs to --scenario server, got {', '.join(names)}")

    def _load(self, name: str, bound_ms: float) -> Load:
        scenario = cast("Scenario", name)
        least = MINIMUM[scenario]
        rate_per_s = self.rate_per_s if scenario == "server" else None
        if self.seconds is None:
            return Load(scenario, least.seconds, least.queries, rate_per_s, bound_ms)
        return Load(scenario, self.seconds, 1, rate_per_s, bound_ms)


def run(wishes: Wishes, as_json: bool, say: Callable[[str], object]) -> None:
    """Drive and tell; SelftestError for a bundle that answers wrong, StageError where the driven process died."""
    job = wishes.job()
    bundle = bundles.read(wishes.bundle)  # a wrong one is told as such, not as a process that died
    _prove(wishes, bundle)
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-load-") as folder,
        Watch(Path(folder)) as watch,
        watch.during(f"{wishes.bundle.name} under load", quietly=True),
    ):
        outcome = drive(job)
    if as_json:
        say(json.dumps(_record(wishes, bundle.sha256, outcome), indent=2))
    else:
        for line in _told(wishes, outcome):
            say(line)
    if outcome.failed:
        raise StageError(f"{wishes.bundle.name}: {outcome.failed}")


def _prove(wishes: Wishes, bundle: bundles.Bundle) -> None:
    """How fast wrong answers come is of no use, so the golden vectors come first, on the interpreter that is driven."""
    interpreter = installed(bundle.manifest.target)[0]
    report = prove(wishes.bundle, wishes.threads, interpreter)
    if not report.ok:
        raise SelftestError(
            f"{wishes.bundle}: the golden vectors did not come out as recorded on {report.interpreter} "
            f"{report.version}, so it is not driven; `edgerun selftest` says by how much"
        )


def _record(wishes: Wishes, sha256: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "bundle": str(wishes.bundle),
        "sha256": sha256,
        "threads": wishes.threads,
        "machine": bench.machine(),
        "runs": [result.to_json() for result in outcome.results],
        "rate": outcome.found.to_json() if outcome.found else None,
        "failed": outcome.failed,
    }


def _told(wishes: Wishes, outcome: Outcome) -> Iterator[str]:
    machine = bench.machine()
    yield f"{wishes.bundle.name}, threads: {wishes.threads}, one worker, raw sample to answer, driven by LoadGen"
    yield f"on {machine['host']} ({machine['cpu']}, {machine['cores']} cores), Python {machine['python']}"
    for result in outcome.results:
        yield from _result(result)
    if outcome.found:
        yield from _found(outcome.found)


def _result(result: Result) -> Iterator[str]:
    asked = "" if result.rate_per_s is None else f" at {result.rate_per_s:,.1f} arrivals per s"
    yield f"{result.scenario}{asked}: {count(result.queries)} queries in {result.seconds:.1f} s"
    yield f"  answered    {result.throughput_per_s:,.1f} per s, {percent(result.error_rate)} with an error"
    if result.first_error:
        yield f"  first error {result.first_error}"
    if result.scenario != "offline":
        for name, found in result.latency.items():
            span = "" if found.low_ms is None else f" ({milliseconds(found.low_ms)}–{milliseconds(found.high_ms)})"
            yield f"  {name}         {milliseconds(found.value_ms)} ms{span}"
    service = f"p50 {milliseconds(result.service_p50_ms)} ms, p99 {milliseconds(result.service_p99_ms)} ms"
    yield f"  service     {service}"
    peak = "unknown" if result.peak_bytes is None else f"{result.peak_bytes / 2**20:,.0f} MiB"
    own = "" if not result.loadgen_bytes else f", of which LoadGen {result.loadgen_bytes / 2**20:,.0f} MiB"
    yield f"  process     {result.cpu_cores:.2f} cores busy, at most {peak} resident{own}"
    if result.p99_bound_ms is not None:
        sure = ", 99 % sure" if result.sure else ""
        yield f"  p99 bound   {result.p99_bound_ms:g} ms: {'met' + sure if result.meets else 'NOT met'}"
    yield from _marks(result)


def _found(found: Found) -> Iterator[str]:
    for trial in found.trials:
        word = ("met" if trial.meets else "over") + (", disturbed" if trial.disturbed else "")
        yield f"  {trial.reason:<8} {trial.rate_per_s:>10,.1f} per s   p99 {milliseconds(trial.p99_ms):>8} ms   {word}"
    if found.rate_per_s is None:
        yield f"no rate with a p99 within {found.p99_bound_ms:g} ms: {found.why}"
    else:
        yield f"highest rate with a p99 within {found.p99_bound_ms:g} ms: {found.rate_per_s:,.1f} per s; {found.why}"
    yield from _marks(found)


def _marks(told: Result | Found) -> Iterator[str]:
    """Why it is not to be relied on."""
    if told.short:
        yield f"  SHORT       of what MLPerf asks for: {told.why_short}"
    if told.disturbed:
        yield f"  DISTURBED   {'; '.join(told.disturbed)}"
