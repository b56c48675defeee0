"""MLPerf's LoadGen asks a server in its server scenario: every query is answered, and with the bundle's own answer.

The rates are low, for nothing here is about speed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core import subprocesses
from edgekit.measure.load import loadgen_logs
from edgekit.measure.load.scenarios import Load
from edgekit.runner import load as load_bundle
from tests.runner.conftest import samples
from tests.serve.conftest import Start
from tests.serve.loadgen import Job
from tests.serve.server import Server

pytestmark = pytest.mark.processes

SAMPLES = 64
CLIENTS = 4
QUERIES = 500
"""Of fewer than 459, LoadGen is never 99 % sure of a p99."""
RATE_PER_S = 80.0
LOAD = Load("server", 2.0, queries=QUERIES, rate_per_s=RATE_PER_S, p99_bound_ms=20_000, seed=20)


@dataclass
class LoadGenRun:
    """What came of a run: what the clients saw, and the folder of LoadGen's logs."""

    target: str
    seen: dict[str, Any]
    folder: Path
    before: dict[str, Any]
    after: dict[str, Any]

    def counted(self, what: str) -> int:
        """By how much a count of the server's statistics rose."""
        return int(self.after[what]["count"] - self.before[what]["count"])

    @property
    def result(self) -> dict[str, Any]:
        """LoadGen's own result."""
        return loadgen_logs.read_detail(self.folder)


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Server:
    """All three targets, two workers."""
    return start(folder, "--workers", 2)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "samples.npy"
    np.save(path, samples(SAMPLES))
    return path


@pytest.fixture(scope="module")
def expected(bundles: dict[str, Path]) -> dict[str, np.ndarray]:
    """What each bundle itself answers, (SAMPLES, 3), by target; no two are as near as the rounding of a batch."""
    found = {}
    for target in ("onnx", "openvino", "tflite"):
        model = load_bundle(bundles[target], trial=False)
        found[target] = np.array([model.execute(model.prepare(image)) for image in samples(SAMPLES)], np.float32)
        apart = np.abs(found[target][:, None] - found[target]).max(axis=2) + np.eye(SAMPLES)
        assert apart.min() > 1e-4
    return found


def run_loadgen(server: Server, raw: Path, folder: Path, target: str, accuracy: bool) -> LoadGenRun:
    """One run of LoadGen, to its end."""
    model = f"/v2/models/tiny-{target}"

    def statistics() -> dict[str, Any]:
        counts: dict[str, Any] = server.get(f"{model}/stats").json()["model_stats"][0]["inference_stats"]
        return counts

    job = Job(server.url, f"{model}/infer", str(raw), CLIENTS, LOAD, accuracy)
    job.write(folder / "job.json")
    before = statistics()
    ended = subprocesses.run("tests.serve.loadgen:main", [str(folder / "job.json")], folder / "output.txt", 120.0)
    assert ended.code == 0, ended.describe()
    return LoadGenRun(target, json.loads((folder / "ended.json").read_text()), folder, before, statistics())


def check_answers(answers: list[tuple[int, str]], expected: np.ndarray) -> None:
    """Each is what the bundle gives for this very sample; a batch may round its last bits otherwise."""
    got = np.array([np.frombuffer(bytes.fromhex(outputs), "<f4") for _, outputs in answers])
    expected_rows = expected[[index for index, _ in answers]]
    np.testing.assert_allclose(got, expected_rows, rtol=0, atol=5e-6)


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def measured(
    request: pytest.FixtureRequest, server: Server, raw: Path, tmp_path_factory: pytest.TempPathFactory
) -> LoadGenRun:
    """A run in performance mode."""
    return run_loadgen(server, raw, tmp_path_factory.mktemp("loadgen"), request.param, accuracy=False)


def test_every_query_is_answered_rightly_and_loadgen_calls_the_run_valid(
    measured: LoadGenRun, expected: dict[str, np.ndarray]
) -> None:
    seen, result = measured.seen, measured.result
    assert seen["errors"] == []
    assert seen["issued"] == len(seen["answers"]) == result["queries"] >= QUERIES
    assert measured.counted("success") == seen["issued"]
    assert measured.counted("fail") == 0
    assert result["validity"] == "VALID"
    assert result["min_duration_met"] and result["min_queries_met"] and result["early_stopping_met"]
    check_answers(seen["answers"], expected[measured.target])
    assert len({index for index, _ in seen["answers"]}) > SAMPLES / 2, "drawn at random"
    assert 1 <= seen["connections"] <= CLIENTS, "a connection carries many queries"


def test_arrivals_are_a_poisson_process_and_each_latency_is_recorded(measured: LoadGenRun) -> None:
    lines = (measured.folder / loadgen_logs.TRACE_LOG).read_text().splitlines()
    begun = [json.loads(line.rstrip(",")) for line in lines if '"name":"Sample"' in line and '"ph":"b"' in line]
    gaps_s = np.diff(sorted(each["ts"] for each in begun)) / 1e6  # of scheduled times, which no load can move
    assert gaps_s.mean() == pytest.approx(1 / RATE_PER_S, rel=0.2)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.2), "as of an exponential distribution"
    latencies_ms = loadgen_logs.read_latencies_ms(measured.folder)
    assert len(begun) == len(latencies_ms) == measured.result["queries"]
    assert 0 < latencies_ms.min() <= measured.result["p50_ns"] / 1e6 <= measured.result["p99_ns"] / 1e6


@pytest.mark.parametrize("target", ["onnx", "openvino", "tflite"])
def test_in_accuracy_mode_the_answers_that_loadgen_kept_are_the_bundles(
    target: str, server: Server, raw: Path, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    run = run_loadgen(server, raw, tmp_path, target, accuracy=True)
    assert run.seen["errors"] == []
    kept = json.loads((tmp_path / "mlperf_log_accuracy.json").read_text())
    answers = [(each["qsl_idx"], each["data"]) for each in kept]
    assert sorted(index for index, _ in answers) == list(range(SAMPLES)), "each sample once"
    check_answers(answers, expected[target])
    assert run.counted("success") == SAMPLES
    assert run.counted("fail") == 0
