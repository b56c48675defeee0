"""A finished run in a real local MLflow store, read back with MLflow's own client; nothing contacts the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgekit.core.errors import ConfigError
from edgekit.report import finished_run as finished
from edgekit.report import html, mlflow
from edgekit.report.result import RESULT
from tests.conftest import ROOT, TINY, FinishedRun, run_edgekit
from tests.report.html import runs

if TYPE_CHECKING:
    from mlflow import MlflowClient

GUARDED = """
import socket, sqlite3, sys

def refuse(self, address):
    print("CALLED OUT", address, file=sys.stderr)
    raise OSError("no network in this test")

socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = lambda *given, **more: refuse(None, given)

def unsynchronized(*given, connect=sqlite3.dbapi2.connect, **more):
    connection = connect(*given, **more)
    connection.execute("PRAGMA synchronous = OFF")  # or a new store waits a thousand times for the disk
    return connection

sqlite3.dbapi2.connect = sqlite3.connect = unsynchronized
from edgekit.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def folder(tiny_run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.copy(tiny_run, tmp_path_factory.mktemp("tracked"))


@pytest.fixture(scope="module")
def logged(folder: Path) -> tuple[MlflowClient, Any, str]:
    """The client, the run as MLflow gives it back, and the store's URI; logged by the command without a network."""
    uri = f"sqlite:///{folder.parent}/mlflow.db"
    plain = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_CURRENT_TEST")}
    command = [sys.executable, "-c", GUARDED, "report", str(folder), "--mlflow", uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=plain)
    assert done.returncode == 0, done.stderr
    assert "CALLED OUT" not in done.stderr
    assert "of experiment tiny at sqlite:///" in done.stdout
    client = mlflow._client(uri)
    experiment = client.get_experiment_by_name("tiny")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run, uri


def test_every_option_is_a_parameter(logged: tuple[MlflowClient, Any, str], folder: Path) -> None:
    params = logged[1].data.params
    assert params["prune.ratio"] == "0.3"
    assert params["seed"] == "0"  # not in the file: the default that it had
    assert params["distill.student.kwargs.width"] == "16"
    assert params["budget.accuracy_drop_pp"] == "25.0"
    assert params["convert.models"] == '["baseline", "pruned"]'
    result = json.loads((folder / RESULT).read_text())
    assert params["conditions.cpu"] == result["conditions"]["cpu"]
    assert set(params) == set(mlflow.parameters(folder, result))


def test_every_figure_is_a_metric(logged: tuple[MlflowClient, Any, str], folder: Path) -> None:
    metrics = logged[1].data.metrics
    result = json.loads((folder / RESULT).read_text())
    for row in result["variants"]:
        for name in ("p50_ms", "p99_ms", "accuracy_validation", "accuracy_test", "bytes"):
            assert metrics[f"{row['name']}/{name}"] == pytest.approx(row[name])
    assert metrics["verdict/speedup_vs_eager"] == pytest.approx(result["verdict"]["speedup_vs_eager"])
    assert metrics["verdict/met"] == 1.0
    for stage, outcome in result["stages"].items():
        assert metrics[f"seconds/{stage}"] == pytest.approx(outcome["seconds"])
    assert logged[1].info.status == "FINISHED"
    assert logged[1].data.tags["edgekit.winner"] == result["verdict"]["winner"]


def test_what_it_delivers_is_there_to_the_byte(
    logged: tuple[MlflowClient, Any, str], folder: Path, tmp_path: Path
) -> None:
    client, run, _ = logged
    result = json.loads((folder / RESULT).read_text())
    expected = {RESULT, html.PAGE, "bundles/edgerun.pyz", "report/06_benchmark.html"}
    expected |= {f"bundles/{entry['file']}" for entry in result["bundles"].values()}
    for name in expected:
        fetched = Path(client.download_artifacts(run.info.run_id, name, str(tmp_path)))
        assert fetched.read_bytes() == (folder / name).read_bytes(), name
    assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(folder.parent / "mlartifacts")


def test_the_same_result_is_logged_once(logged: tuple[MlflowClient, Any, str], folder: Path) -> None:
    client, run, uri = logged
    assert f"logged already as run {run.info.run_id}" in mlflow.log_run(folder, uri)
    assert len(client.search_runs([run.info.experiment_id])) == 1


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as Python marks a module that cannot be imported
    with pytest.raises(ConfigError, match=r"pip install mlflow-skinny alembic sqlalchemy"):
        mlflow.check_store("sqlite:///x.db")


@pytest.mark.parametrize("uri", ["http://user:secret@127.0.0.1:9", "gopher://somewhere", "sqlite:////proc/none/x.db"])
def test_a_store_that_does_not_answer_is_reported_before_anything_runs(uri: str, tmp_path: Path) -> None:
    done = run_edgekit("run", str(TINY), "--out", str(tmp_path), "--mlflow", uri, MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert done.returncode == 2, done.stderr
    assert "edgekit: --mlflow " in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_options_are_flat_and_named_as_in_a_config() -> None:
    assert finished.flatten({"a": {"b": {"c": 1}, "d": []}, "e": {}}) == {"a.b.c": 1, "a.d": [], "e": {}}
