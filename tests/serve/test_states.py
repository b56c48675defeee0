"""A model with states behind the socket: each sample of a request begins with zeros; a recording is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_bundle import edgekit, last_output
from tests.runner import stepped
from tests.runner.test_states import table
from tests.serve.conftest import Start
from tests.serve.server import Server

MODEL = "/v2/models/stepped"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stepped.write(tmp_path_factory.mktemp("stepped"), "onnx")


@pytest.fixture(scope="module")
def server(start: Start, path: Path) -> Server:
    return start(path)


@pytest.mark.processes
def test_every_sample_begins_with_zeros(server: Server) -> None:
    windows = stepped.steps(3)
    tensor = {"name": "window", "shape": windows.shape, "datatype": "FP32", "data": windows.ravel().tolist()}
    for _ in range(2):
        reply = server.post(f"{MODEL}/infer", json.dumps({"inputs": [tensor]}).encode(), {}).json()
        found = np.array(reply["outputs"][0]["data"]).reshape(windows.shape)
        np.testing.assert_allclose(found, windows, atol=1e-6)


@pytest.mark.processes
def test_a_file_is_one_sample_or_refused(server: Server, tmp_path: Path) -> None:
    one, two = (table(tmp_path / f"{count}.csv", stepped.steps(count)).read_bytes() for count in (1, 2))
    [answer] = server.post("/predict?model=stepped", one, {}).json()["answers"]
    np.testing.assert_allclose(answer["output"], stepped.steps(1)[0], atol=1e-6)
    reply = server.post("/predict?model=stepped", two, {})
    assert reply.status == 400 and "several windows, but a model with states takes one" in reply.json()["error"]


@pytest.mark.parametrize("server_name", ["triton", "ovms", "kserve", "tensorrt"])
def test_other_servers_are_not_given_it(server_name: str, path: Path, tmp_path: Path) -> None:
    more = ("--storage-uri", "s3://b/x") if server_name == "kserve" else ()
    assert edgekit("export", server_name, path, "--out", tmp_path / "out", *more) == 4
    assert "the model has states, which exports do not support; use edgekit serve" in last_output()
    assert not (tmp_path / "out").exists()
