"""LoadGen with callables of known service time: counts, clocks, errors, and results that are marked as short."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from edgekit.core import subprocesses
from edgekit.device import processes
from edgekit.device.measure import conditions
from edgekit.measure.load import launcher
from edgekit.measure.load.launcher import LoadJob, LoadOutcome, run_loads
from edgekit.measure.load.loadgen_run import LOAD_TIMEOUT, QUERY_BYTES, fit_to_memory, timeout_s
from edgekit.measure.load.scenarios import MLPERF_MINIMUMS, SCENARIOS, Load, LoadMinimum, LoadResult, Scenario
from edgekit.measure.load.subjects import SubjectSpec

pytestmark = pytest.mark.processes

LITTLE = LoadMinimum(0.2, 5)


def words(name: str, **keywords: object) -> SubjectSpec:
    return SubjectSpec(f"tests.measure.load.subjects:{name}", keywords)


def driven(subject: SubjectSpec, *loads: Load) -> dict[Scenario, LoadResult]:
    outcome = run_loads(LoadJob(subject, loads))
    assert outcome.failed is None
    return {result.scenario: result for result in outcome.results}


@pytest.fixture(scope="module")
def results() -> dict[Scenario, LoadResult]:
    """Each scenario, 5 ms an answer: `single_stream` has time for 80; `server` asks at 60 % of what one can answer."""
    loads = (Load("single_stream", 0.4), Load("server", 1.0, rate_per_s=120.0, seed=3), Load("offline", 0.5))
    return driven(words("sleeping", seconds=0.005), *loads)


def test_every_scenario_comes_to_a_result(results: dict[Scenario, LoadResult]) -> None:
    assert tuple(results) == SCENARIOS
    for result in results.values():
        assert result.errors == 0 and result.first_error is None and result.error_rate == 0
        assert result.service_p50_ms > 5
        assert 0 < result.throughput_per_s < 200
        assert result.throughput_per_s == pytest.approx(result.queries / result.seconds)
        assert result.peak_bytes and result.peak_bytes > 10_000_000
        assert result.loadgen["version"].startswith("6.")


def test_counts_are_those_of_loadgens_own_log(results: dict[Scenario, LoadResult]) -> None:
    for scenario in ("single_stream", "server"):
        assert results[scenario].queries == results[scenario].loadgen["queries"]
    assert results["offline"].loadgen["queries"] == 1
    assert results["offline"].queries > 5


def test_percentiles_are_those_of_loadgens_own_log(results: dict[Scenario, LoadResult]) -> None:
    """LoadGen takes the sample at or above a rank, we interpolate below it; and its binding takes some time too."""
    for result in results.values():
        other = {rank: result.loadgen[f"{rank}_ns"] / 1e6 for rank in ("p50", "p99")}
        assert result.latency["p50"].value_ms == pytest.approx(other["p50"], rel=0.1), result.scenario
        # where all answers take as long, even our p99 may lie below their p50, by what the binding takes
        assert 0.9 * other["p50"] < result.latency["p99"].value_ms < other["p99"] + 0.1, result.scenario


def test_a_query_that_waits_counts_its_wait(results: dict[Scenario, LoadResult]) -> None:
    """Open loop: at 120 per s, 5 ms an answer, the arrivals that bunch wait for one another."""
    server, single = results["server"], results["single_stream"]
    assert server.latency["p95"].value_ms > 2 * server.service_p50_ms
    assert single.latency["p50"].value_ms == pytest.approx(single.service_p50_ms)
    assert server.meets is False and server.sure is False


def test_what_went_on_meanwhile_is_seen(results: dict[Scenario, LoadResult]) -> None:
    for result in results.values():
        assert result.seen.seconds > result.seconds  # from before LoadGen's preparations
        assert result.seen.pace_ms > 0
        assert result.disturbed == conditions.noise_reasons(result.seen)
        assert LoadResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert results["single_stream"].seen.noise is None, "of a hundred queries, which are too few"


def test_the_spread_of_latencies_is_reported_for_closed_loops_only() -> None:
    """In server some follow upon others and some upon a pause, and take longer then, on the quietest machine."""
    loads = (Load("single_stream", 0.3, 300), Load("server", 0.3, 300, rate_per_s=600.0), Load("offline", 0.3, 300))
    noise = {name: result.seen.noise for name, result in driven(words("sleeping", seconds=0.0), *loads).items()}
    assert noise["single_stream"] is not None and noise["offline"] is not None
    assert noise["server"] is None


def test_an_overloaded_server_is_left_and_its_queue_seen() -> None:
    """At five times what can be answered, the last query that was issued is late by most of the run."""
    load = Load("server", 0.3, rate_per_s=1000.0, p99_bound_ms=10)
    result = driven(words("sleeping", seconds=0.005), load)["server"]
    assert result.latency["p99"].value_ms > max(100, 3 * result.service_p50_ms)
    assert result.queries > result.throughput_per_s * 0.3
    assert result.meets is False


def test_in_offline_the_last_answer_comes_at_the_end(results: dict[Scenario, LoadResult]) -> None:
    offline = results["offline"]
    assert offline.latency["p99"].value_ms > 0.9 * 1000 * offline.seconds
    assert offline.latency["p50"].value_ms > 10 * offline.service_p50_ms


def test_what_rests_on_less_than_mlperf_asks_for_is_short(results: dict[Scenario, LoadResult]) -> None:
    assert all(result.short for result in results.values())
    assert results["single_stream"].why_short == f"0.4 of 600 s; {results['single_stream'].queries} of 100 queries"
    assert results["offline"].why_short.endswith(f"{results['offline'].queries} of 24,576 queries")


def test_what_rests_on_enough_is_not_short() -> None:
    loads = [
        Load("single_stream", 0.3, queries=5, minimum=LITTLE),
        Load("server", 0.3, queries=5, rate_per_s=50.0, p99_bound_ms=0.001, minimum=LITTLE),
        Load("offline", 0.3, queries=200, minimum=LITTLE),  # 0.4 s, however little warming up predicted
    ]
    for result in driven(words("sleeping", seconds=0.002), *loads).values():
        assert (result.short, result.why_short) == (False, ""), result.scenario


def test_a_bound_that_is_met_by_too_few_queries_is_short() -> None:
    """Of fewer than 459 queries none of which is late, nobody is 99 % sure that less than 1 % are: 0.99^459 < 0.01."""
    load = Load("server", 0.3, queries=5, rate_per_s=50.0, p99_bound_ms=5000, minimum=LITTLE)
    result = driven(words("sleeping", seconds=0.001), load)["server"]
    assert (result.meets, result.sure, result.short) == (True, False, True)
    assert "99 % sure" in result.why_short


def test_enough_queries_in_time_are_sure() -> None:
    load = Load("server", 1.0, queries=500, rate_per_s=600.0, p99_bound_ms=5000, minimum=LITTLE)
    result = driven(words("sleeping", seconds=0.0), load)["server"]
    assert (result.meets, result.sure, result.short) == (True, True, False)
    assert result.queries >= 500


def test_an_answer_that_raises_is_counted_and_asked_no_more() -> None:
    loads = (Load("single_stream", 0.2), Load("server", 0.3, rate_per_s=200.0, p99_bound_ms=5000), Load("offline", 0.2))
    for result in driven(words("failing", every=4), *loads).values():
        assert result.error_rate == pytest.approx(0.25, abs=1 / result.queries)
        assert result.first_error == "ValueError: the sensor\nwas gone"
        assert not result.meets


def test_minimums_are_those_inside_loadgen() -> None:
    """LoadGen reads its mlperf.conf once in a process, so each scenario is asked for in one of its own."""
    for scenario in SCENARIOS:
        outcome = run_loads(LoadJob(words("minimums", scenario=scenario), (Load("single_stream", 0.05),)))
        assert outcome.failed is not None
        seconds, queries = outcome.failed.split("LoadGen asks for ")[1].split()
        assert LoadMinimum(float(seconds), int(queries)) == MLPERF_MINIMUMS[scenario]


def test_a_load_that_memory_cannot_hold_is_cut() -> None:
    load = Load("single_stream", 600.0, 100)
    assert fit_to_memory(load, 1000.0, None) == fit_to_memory(load, 1000.0, 10**12) == load
    cut = fit_to_memory(load, 20_000.0, 2**30)
    assert (cut.scenario, cut.queries) == ("single_stream", 100)
    assert cut.seconds * 20_000 * QUERY_BYTES == pytest.approx(2**29, rel=0.01)
    assert fit_to_memory(load, 20_000.0, 0).queries == 1


def test_a_load_may_take_as_long_as_its_queries_do() -> None:
    assert timeout_s(Load("single_stream", 1.0, queries=100), 0.5) >= LOAD_TIMEOUT * 200
    assert timeout_s(Load("offline", 1.0, queries=24_576), 100.0) >= LOAD_TIMEOUT * 245.76
    assert timeout_s(Load("server", 1.0, queries=100), 4.0) >= LOAD_TIMEOUT * 50, (
        "half of what a closed loop is answered"
    )
    assert timeout_s(Load("server", 1.0, queries=100, rate_per_s=0.5), 4.0) >= LOAD_TIMEOUT * 200
    assert LOAD_TIMEOUT * 600 <= timeout_s(Load("single_stream", 600.0, queries=100), 1000.0) < 2 * LOAD_TIMEOUT * 600


def test_a_step_has_the_time_that_it_said_and_the_next_has_its_own(tmp_path: Path) -> None:
    journal = tmp_path / "job.journal"
    step = launcher._WorkerStep(journal)
    assert not step.is_late()
    with open(journal, "a", buffering=1) as stream:
        stream.write('{"begins": "offline", "within_s": 0.05}\n')
        assert not step.is_late()
        time.sleep(0.1)
        assert step.is_late() and step.within_s == 0.05
        stream.write('{"begins": "server", "within_s": 1000}\n')
        assert not step.is_late()


def test_a_load_survives_json() -> None:
    job = LoadJob(
        words("sleeping", seconds=1.0), (Load("server", 1.0, rate_per_s=2.0, minimum=LITTLE),), Load("server", 1)
    )
    assert LoadJob.from_json(job.to_json()) == job


class TestChild:
    def test_a_killed_load_is_reported_in_one_line_and_its_measurements_are_kept(self) -> None:
        loads = (Load("single_stream", 0.2), Load("offline", 0.2, queries=2000))
        outcome = run_loads(LoadJob(words("killed", after=700), loads))
        assert [result.scenario for result in outcome.results] == ["single_stream"]
        self._one_line(outcome, "offline: the process was killed (SIGKILL), as the system does when memory runs out")

    def test_one_that_cannot_be_opened_says_why(self) -> None:
        outcome = run_loads(LoadJob(words("nobody"), (Load("offline", 0.1),)))
        self._one_line(
            outcome, "opening the model: AttributeError: module 'tests.measure.load.subjects' has no attribute 'nobody'"
        )

    def test_one_that_hangs_ends_at_the_limit(self) -> None:
        outcome = run_loads(LoadJob(words("sleeping", seconds=600), (Load("offline", 0.1),)), limit_s=3)
        self._one_line(outcome, "did not end within 3 s")

    def test_one_that_hangs_in_a_step_ends_when_that_step_should_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(launcher, "START_TIMEOUT_S", 3.0)
        outcome = run_loads(LoadJob(words("sleeping", seconds=600), (Load("offline", 0.1),)))
        self._one_line(outcome, "did not end within 3 s")

    def test_it_leaves_with_its_parent(self, tmp_path: Path) -> None:
        path = tmp_path / "job.json"
        path.write_text(json.dumps(LoadJob(words("sleeping", seconds=600), (Load("offline", 0.1),)).to_json()))
        child = subprocesses.start("edgekit.measure.load.worker:run_job", [str(path)])
        assert child.stdin
        child.stdin.close()  # what happens to the pipe when the parent is killed
        assert child.wait(timeout=60) == processes.KILLED

    @staticmethod
    def _one_line(outcome: LoadOutcome, message: str) -> None:
        assert outcome.failed is not None
        assert "\n" not in outcome.failed and "Traceback" not in outcome.failed
        assert message in outcome.failed
