"""Peers: the shape they share, which of their files are kept, and what is said where something cannot be run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.harness import NotRun, environment_python
from benchmarks.peers import worker_protocol
from benchmarks.peers.peer import OutputFile, Peer, PeerOutput, PeersRecord, failed_row, read_record, record_row
from benchmarks.peers.toolkits import PEERS, pareto_front
from benchmarks.peers.worker_protocol import WorkerJob
from edgekit.core import artifacts
from edgekit.core.errors import ModelError
from edgekit.data import load as load_data
from edgekit.targets.evaluate import network_inputs
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY

pytestmark = pytest.mark.long
RELEASE = "onnxruntime"
"""The peer whose library every workbook has, so that its worker runs for real here."""


def environment(home: Path, peer: Peer, python: str = sys.executable) -> None:
    """An environment that is made already: the packages that the tests run with."""
    path = home / peer.name / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    path.chmod(0o755)
    (home / peer.name / ".made").write_text("\n".join([*peer.first, *peer.packages, *peer.without_dependencies]))


def file(folder: Path, name: str, accuracy: float, p50_ms: float, size: int) -> OutputFile:
    path = folder / name
    path.write_bytes(bytes(size))
    return OutputFile(path, "tried", 60.0, {}, accuracy, p50_ms)


def peers(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.peers", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_the_shape_and_a_worker(name: str) -> None:
    peer = PEERS[name]
    assert peer.what
    assert (ROOT / "benchmarks" / "peers" / "workers" / f"{name}.py").is_file()
    own = [each for each in peer.packages if name.replace("_", "-") in each]
    assert own and "==" in own[0], "a peer's own library is pinned"


def test_the_front_has_what_no_other_file_beats(tmp_path: Path) -> None:
    files = [
        file(tmp_path, "small", 0.7, 2.0, 10),
        file(tmp_path, "best", 0.9, 3.0, 30),
        file(tmp_path, "slower", 0.9, 3.5, 30),
        file(tmp_path, "larger", 0.7, 2.0, 11),
        file(tmp_path, "fast", 0.6, 1.0, 30),
        file(tmp_path, "same as fast", 0.6, 1.0, 30),
    ]
    assert [one.path.name for one in pareto_front(files)] == ["best", "small", "fast", "same as fast"]


def test_a_file_that_a_search_did_not_measure_is_reported(tmp_path: Path) -> None:
    unmeasured = OutputFile(tmp_path / "olive-1.onnx", "tried", 60.0)
    with pytest.raises(ValueError, match=r"olive-1.onnx: Olive measured no accuracy"):
        pareto_front([unmeasured])


def test_the_weights_beside_an_xml_count(tmp_path: Path) -> None:
    (tmp_path / "net.xml").write_bytes(bytes(10))
    (tmp_path / "net.bin").write_bytes(bytes(90))
    assert OutputFile(tmp_path / "net.xml", "", 1.0).bytes == 100


def test_samples_stand_as_a_file_takes_them(tmp_path: Path) -> None:
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    np.savez(tmp_path / worker_protocol.SAMPLES, calibration=x)
    to = WorkerJob(tmp_path, tmp_path, 1)
    assert np.array_equal(to.samples_for([3, 4, 5]), x)
    assert np.array_equal(to.samples_for([4, 5, 3]), x.transpose(0, 2, 3, 1))
    with pytest.raises(ValueError, match="takes"):
        to.samples_for([7])


def test_a_worker_reports_in_one_line_what_it_could_not_make(tmp_path: Path) -> None:
    def breaks(path: Path) -> None:
        raise RuntimeError("\n  no kernel\nfor this")

    to = WorkerJob(tmp_path, tmp_path, 1)
    row = worker_protocol.make_file(to, "a.onnx", "tried", lambda path: path.write_bytes(b"x"))
    assert row["file"] == "a.onnx" and row["seconds"] >= 0
    assert worker_protocol.make_file(to, "b.onnx", "tried", breaks)["failed"] == "RuntimeError: no kernel"
    assert (
        worker_protocol.make_file(to, "c.onnx", "tried", lambda path: None)["failed"]
        == "FileNotFoundError: wrote no file"
    )
    with pytest.raises(FileNotFoundError, match="run it with the target tflite"):
        _ = to.tflite


def test_a_worker_that_fails_is_reported_with_its_log(tmp_path: Path) -> None:
    peer = Peer("nowhere", "a worker that does not exist", ("nothing==1",))
    environment(tmp_path / "environments", peer)
    with pytest.raises(NotRun, match=r"nowhere: ended with exit code 1; see .*worker.log"):
        peer.files(tmp_path, tmp_path / "out", tmp_path / "environments", 1)
    assert "benchmarks.peers.workers.nowhere" in (tmp_path / "out" / "worker.log").read_text()


def test_an_environment_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match=r"ours: .*nothing\.whl ended with exit code 1") as raised:
        environment_python(tmp_path / "ours", (), without_dependencies=(str(tmp_path / "nothing.whl"),))
    assert "--no-deps" in str(raised.value) and len(str(raised.value).splitlines()) == 1


def test_a_file_that_no_interpreter_runs_is_a_failure_and_no_reference_model(tmp_path: Path) -> None:
    runs, dies = file(tmp_path, "runs.onnx", 0.9, 1.0, 10), file(tmp_path, "dies.onnx", 0.9, 1.0, 10)

    def evaluate(path: Path) -> dict[str, Any]:
        if path == dies.path:
            raise ModelError(f"{path}: no kernel for ConvInteger")
        return {"accuracy_validation": 0.8, "sha256": "1" * 64}

    peer_output = PeerOutput([runs, dies], [{"file": "not.onnx", "how": "static", "why": "no"}], 3.0, 2)
    row = record_row(PEERS[RELEASE], peer_output, tmp_path, evaluate)
    assert [one["file"] for one in row["files"]] == ["runs.onnx"]
    assert [(one["file"], one["why"]) for one in row["failures"]] == [
        ("not.onnx", "no"),
        ("dies.onnx", "no kernel for ConvInteger"),
    ]


def test_what_was_made_of_another_baseline_is_forgotten(tmp_path: Path) -> None:
    record = PeersRecord(tmp_path, "a" * 64, {RELEASE: failed_row(PEERS[RELEASE], "onnxruntime: no disk")})
    record.write()
    assert read_record(tmp_path, "a" * 64).peers[RELEASE]["failures"][0]["why"] == "no disk"
    assert read_record(tmp_path, "b" * 64).peers == {}


def finished_run(folder: Path, accuracy: float) -> None:
    """A run of the tiny config whose float ONNX file is the linear classifier that fits its data best."""
    plan = load_plan(TINY)
    data = load_data(plan.data)

    def inputs(x: np.ndarray) -> np.ndarray:
        return network_inputs(x, plan.run.preprocess).reshape(len(x), -1)

    ones = np.eye(len(data.classes), dtype=np.float32)[data.train.y]
    weights = np.linalg.lstsq(np.pad(inputs(data.train.x), ((0, 0), (0, 1)), constant_values=1), ones, rcond=1e-3)[0]
    shape = ["batch", *network_inputs(data.train.x[:1], plan.run.preprocess).shape[1:]]
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("Gemm", ["flat", "w", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", len(data.classes)])],
        [
            numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in (("w", weights[:-1]), ("b", weights[-1]))
        ],
    )
    path = folder / "convert" / "baseline-fp32-onnx" / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    logits = inputs(data.validation.x) @ weights[:-1] + weights[-1]
    right = float(np.mean(logits.argmax(1) == data.validation.y)) if accuracy < 0 else accuracy
    out, metrics = artifacts.begin(folder / "profile"), {"validation_accuracy": right}
    artifacts.seal(out, stage="profile", source=None, data_digest="digits", config={}, metrics=metrics)


def test_a_peer_that_fails_is_reported_in_one_line_and_the_others_go_on(tmp_path: Path) -> None:
    run, home, out = tmp_path / "tiny", tmp_path / "environments", tmp_path / "out"
    finished_run(run, accuracy=-1)
    environment(home, PEERS[RELEASE])
    environment(home, PEERS["nncf"], python="false")
    words = [str(TINY), "--run", str(run), "--out", str(out), "--environments", str(home)]
    ended = peers(*words, "--only", "nncf", "--only", RELEASE)
    assert ended.returncode == 1, ended.stderr
    [failed, *unmade] = ended.stderr.splitlines()
    assert failed.startswith("peers: nncf: ended with exit code 1")
    assert all(line.startswith(f"peers: {RELEASE}: {RELEASE}-") for line in unmade)

    record = json.loads((out / "peers.json").read_text())["peers"]
    files = {row["file"]: row for row in record[RELEASE]["files"]}
    static = files["onnxruntime-static.onnx"]
    assert static["accuracy_validation"] > 0.5 and static["seconds"] > 0
    assert static["bytes"] == (out / static["path"]).stat().st_size
    assert len(files) + len(unmade) == 3
    setting = (out / "rivals.txt").read_text().removeprefix("benchmark.rivals=")
    assert [Path(rival["path"]).name for rival in json.loads(setting)] == list(files)
    assert ended.stdout.splitlines()[-1].startswith("edgekit run ")


def test_a_file_that_answers_otherwise_than_the_runs_network_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "tiny", accuracy=0.1)
    ended = peers(str(TINY), "--run", str(tmp_path / "tiny"), "--out", str(tmp_path / "out"))
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "model.onnx is right on" in ended.stderr and "the network on 10.00%; give the config" in ended.stderr


def test_a_run_without_a_baseline_for_onnx_is_reported_in_one_line(tmp_path: Path) -> None:
    ended = peers(str(ROOT / "configs" / "digits.yaml"), "--run", str(tmp_path), "--out", str(tmp_path / "out"))
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "baseline-fp32-onnx/model.onnx is not there; run edgekit run" in ended.stderr


def test_a_missing_config_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "convert/baseline-fp32-onnx").mkdir(parents=True)
    (tmp_path / "convert/baseline-fp32-onnx/model.onnx").touch()
    ended = peers(str(tmp_path / "none.yaml"), "--run", str(tmp_path), "--out", str(tmp_path / "out"))
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1 and "none.yaml" in ended.stderr, ended.stderr


def test_a_search_of_no_minutes_is_refused() -> None:
    ended = peers(str(TINY), "--run", "nowhere", "--minutes", "0")
    assert ended.returncode == 2 and "--minutes: got 0; give more than 0" in ended.stderr
