"""Unchanged clients of the protocol against a real server: tritonclient's two and KServe's, in their own environment.

They want an older protobuf than the workbook has, so the environment is made here and deleted afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import load
from tests.conftest import ROOT
from tests.matrix.environments import Environment, installed
from tests.serve import several
from tests.serve.grpc_server import Server
from tests.serve.test_grpc import X, folder, start  # noqa: F401

pytestmark = pytest.mark.serving
CLIENTS = ("tritonclient[grpc]", "grpcio-tools", "kserve")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with installed(CLIENTS, Path(sys.executable), tmp_path_factory.mktemp("clients") / "env") as made:
        yield made


@pytest.fixture(scope="module")
def server(start: Any, folder: Path) -> Server:  # noqa: F811
    """Two workers; `two` is a model of several inputs."""
    several.write("onnx", folder)
    return start("--workers", 2, "--drain-s", 0, folder)


@pytest.fixture
def ask(environment: Environment, server: Server, tmp_path: Path) -> Any:
    """`ask(what)` gives what the client of that name was answered; `x` are other samples than one of `tiny`."""

    def ask(what: str, x: np.ndarray = X[:1]) -> dict[str, Any]:
        np.save(tmp_path / "x.npy", x)
        script = (
            f"import runpy, sys; sys.path.append({str(ROOT)!r}); "
            "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        clients = Path(__file__).with_name("grpc_clients.py")
        done = environment.run("-c", script, clients, what, server.grpc, tmp_path / "x.npy")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return ask


@pytest.fixture
def output(folder: Path) -> str:  # noqa: F811
    """The runner's own, as hexadecimal digits."""
    model = load(folder / "tiny-onnx-1.2.0.edge.zip", trial=False)
    return model.execute(model.prepare(X[0])).tobytes().hex()


def test_tritonclient_is_answered_to_the_bit(ask: Any, output: str, server: Server) -> None:
    found = ask("triton")
    assert found["output"] == output
    body = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 8, 8, 1], "data": X[0].ravel().tolist()}]}
    theirs = {each["name"]: each["data"] for each in server.json("/v2/models/tiny-onnx/infer", body)["outputs"]}
    assert found["answer"] == theirs["answer"]
    assert len(found["classes"]) == 2
    assert (found["live"], found["ready"], found["model_ready"]) == (True, True, True)
    assert (found["server"], found["inputs"], found["backend"], found["id"]) == ("edgekit", ["image"], "edgekit", "a-1")
    assert found["success"] >= 2
    assert found["index"] == ["tiny", "tiny-onnx", "tiny-openvino", "two"]
    assert found["refused"] == {
        "load": "StatusCode.PERMISSION_DENIED",
        "shared memory": "StatusCode.UNIMPLEMENTED",
        "unknown": "StatusCode.NOT_FOUND",
        "late": "StatusCode.UNAVAILABLE",
    }


def test_tritonclients_asynchronous_client_is_answered_forty_times_at_once(ask: Any, output: str) -> None:
    assert ask("triton_aio")["outputs"] == [output]


def test_kserves_client_is_answered_to_the_bit(ask: Any, output: str) -> None:
    assert ask("kserve") == {"outputs": [output, output], "ready": [True, True], "id": "k-1"}


def test_two_clients_send_several_inputs(ask: Any, folder: Path) -> None:  # noqa: F811
    x = several.vectors(several.samples(1))
    model = load(folder / "two-onnx.edge.zip", trial=False)
    expected = np.stack([model.execute(model.prepare(each)) for each in x]).tobytes().hex()
    theirs, kserves = ask("triton_several", x), ask("kserve_several", x)
    assert theirs["outputs"] + kserves["outputs"] == [expected] * 3
    assert theirs["inputs"] == [["picture", "FP32", [-1, 1, 4, 4]], ["ids", "INT32", [-1, 6]]]


def test_every_field_is_tritons_own_and_protoc_makes_the_descriptors_again(ask: Any) -> None:
    found = ask("descriptors")
    assert found["differing"] == []
    assert found["count"] > 90
    assert found["made_again"]
