"""`edgekit load` with a real bundle and a real interpreter."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from edgekit.cli.app import app
from edgekit.cli.load import TRIAL_S, LoadRequest
from edgekit.core.errors import ConfigError
from edgekit.device.measure.conditions import MAX_OTHERS_SHARE
from edgekit.measure.load.rate_search import MIN_TRIAL_QUERIES
from edgekit.measure.load.scenarios import MLPERF_MINIMUMS, SCENARIOS
from edgekit.runner import bundle
from tests.conftest import run_edgekit
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model, reference, samples

NOWHERE = Path("tiny.edge.zip")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = ModelFiles("onnx", {"model.onnx": onnx_model()}, NCHW, SCORES, 1e-4)
    images = samples()
    built = tmp_path_factory.mktemp("bundle") / "tiny-onnx-1.2.0.edge.zip"
    bundle.write(built, manifest_for(model), members_for(model, images, reference(images)))
    return built


def invoke(path: Path, *arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, ["load", str(path), *arguments])


def test_every_scenario_is_reported_and_a_short_measurement_is_called_short(path: Path) -> None:
    done = run_edgekit("load", str(path), "--seconds", "0.2", "--p99-ms", "5000", "--rate", "100")
    assert done.returncode == 0, done.stderr
    for text in (*SCENARIOS, "server at 100.0 arrivals per s", "p99 bound   5000 ms: met", "cores busy", "p95"):
        assert text in done.stdout, done.stdout
    assert done.stdout.count("SHORT       run is shorter than MLPerf requires: 0.2 of 600 s") == 3


def test_the_highest_rate_as_json(path: Path) -> None:
    done = invoke(path, "--max-rate", "--seconds", "0.1", "--p99-ms", "2000", "--json")
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["runs"] == [] and content["failed"] is None
    assert content["sha256"] == bundle.read(path).sha256
    assert content["rate"]["rate_per_s"] > 0 and content["rate"]["p99_bound_ms"] == 2000
    assert all(trial["queries"] >= MIN_TRIAL_QUERIES for trial in content["rate"]["trials"])
    assert content["rate"]["short"] and content["rate"]["why_short"].startswith("0.1 of 600 s")
    assert all(trial["short"] and trial["seen"]["pace_ms"] > 0 for trial in content["rate"]["trials"])


def test_without_loadgen_the_command_says_so_in_one_line(path: Path) -> None:
    hidden = "import sys; sys.modules['mlperf_loadgen'] = None; from edgekit.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "load", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "LoadGen is not installed" in done.stderr and "pip install mlcommons-loadgen" in done.stderr


def test_the_highest_rate_of_a_look_is_called_short(path: Path) -> None:
    done = invoke(path, "--max-rate", "--seconds", "0.1", "--p99-ms", "2000")
    assert done.exit_code == 0, done.stderr
    assert "highest rate with a p99 within 2000 ms" in done.stdout
    assert "SHORT       run is shorter than MLPerf requires: 0.1 of 600 s" in done.stdout


def test_other_load_on_the_machine_is_reported(path: Path) -> None:
    neighbours = math.ceil(2 * MAX_OTHERS_SHARE * len(os.sched_getaffinity(0)))
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
    try:
        done = invoke(path, "--scenario", "single_stream", "--seconds", "0.8")
        as_json = invoke(path, "--scenario", "single_stream", "--seconds", "0.8", "--json")
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert done.exit_code == 0, done.stderr
    assert "DISTURBED   " in done.stdout and "other processes took" in done.stdout
    (run,) = json.loads(as_json.stdout)["runs"]
    assert any("other processes took" in words for words in run["disturbed"])
    assert run["seen"]["others_share"] > MAX_OTHERS_SHARE


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"scenarios": ("sever",)}, "--scenario sever: no such scenario; use one of single_stream, server, offline"),
        ({"scenarios": ("offline",), "rate_per_s": 5.0}, "--rate 5: applies only to --scenario server, got offline"),
        ({"scenarios": ("offline",), "p99_ms": 5.0}, "--p99-ms 5: applies only to --scenario server"),
        ({"max_rate": True, "rate_per_s": 5.0}, "--max-rate: finds the rate itself; leave out --rate"),
        (
            {"max_rate": True, "scenarios": ("offline",)},
            "--max-rate: uses the scenario server; leave out --scenario offline",
        ),
        ({"seconds": 0.0}, "seconds: got 0; use a finite number above 0"),
    ],
)
def test_wishes_that_do_not_fit_together_are_refused(wishes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoadRequest(NOWHERE, **wishes).job()  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_by_default_as_much_as_mlperf_asks_for() -> None:
    for load in LoadRequest(NOWHERE).job().loads:
        assert (load.seconds, load.queries) == (
            MLPERF_MINIMUMS[load.scenario].seconds,
            MLPERF_MINIMUMS[load.scenario].queries,
        )
    search = LoadRequest(NOWHERE, max_rate=True).job().search
    assert search is not None and (search.seconds, search.queries) == (TRIAL_S, MIN_TRIAL_QUERIES)


def test_the_error_for_a_file_that_is_no_bundle_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.edge.zip").write_bytes(b"not a zip")
    done = invoke(tmp_path / "x.edge.zip", "--seconds", "0.1")
    assert done.exit_code == 4 and done.stderr.startswith("edgekit: ") and "not a bundle" in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_bundle_that_answers_wrong_is_not_driven(tmp_path: Path) -> None:
    model = ModelFiles(
        "onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32))}, NCHW, SCORES, 1e-4
    )
    images = samples()
    bundle.write(tmp_path / "x.edge.zip", manifest_for(model), members_for(model, images, reference(images)))
    done = invoke(tmp_path / "x.edge.zip", "--seconds", "0.1")
    assert done.exit_code == 5, done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert "the outputs differ from the golden answers on onnxruntime" in done.stderr
