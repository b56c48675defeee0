"""Models of several inputs for other servers: each input by its name, or a refusal in one line."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import load
from tests.serve import triton
from tests.serve.export.conftest import Export, written
from tests.serve.several import FIVE, LARGEST, TARGETS, request, samples, vectors, write, write_echo
from tests.serve.test_protocol import wire_answer
from tests.serve.test_several_inputs import BAD
from tests.serve.triton import Running

INPUT = re.compile(r'input \{\n  name: "(\w+)"\n  data_type: TYPE_(\w+)\n  dims: \[ ([\d, ]+) \]\n\}')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("several")
    for target in TARGETS:
        write(target, made)
    write_echo(made)
    return made


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_the_config_of_a_native_backend_has_each_input_of_the_file(
    target: str, folder: Path, tmp_path: Path, export: Export
) -> None:
    import openvino

    assert export("triton", folder / f"two-{target}.edge.zip", tmp_path / "out").exit_code == 0
    inputs = INPUT.findall((tmp_path / "out/two/config.pbtxt").read_text())
    assert inputs == [("picture", "FP32", "1, 1, 4, 4"), ("ids", "INT32", "1, 6")]
    [file] = [each for each in (tmp_path / "out/two/1").iterdir() if each.suffix != ".bin"]
    assert {port.get_any_name() for port in openvino.Core().read_model(file).inputs} == {"picture", "ids"}
    readme = (tmp_path / "out/README.md").read_text()
    assert "Input `picture`: float32[1, 1, 4, 4]" in readme and "`ids` is int32[6], 0 to 9." in readme


@pytest.mark.parametrize("target", TARGETS)
def test_the_config_of_the_python_backend_has_each_tensor_by_its_own_name(
    target: str, folder: Path, tmp_path: Path, export: Export
) -> None:
    done = export("triton", folder / f"two-{target}.edge.zip", tmp_path / "out", "--backend", "python")
    assert done.exit_code == 0, done.stderr
    inputs = INPUT.findall((tmp_path / "out/two/config.pbtxt").read_text())
    assert inputs == [("picture", "FP32", "1, 4, 4"), ("ids", "INT32", "6")]
    assert "Input `ids`: int32[n, 6]" in (tmp_path / "out/README.md").read_text()


def test_kserve_gets_the_same_repository(folder: Path, tmp_path: Path, export: Export) -> None:
    path = folder / "two-onnx.edge.zip"
    assert export("triton", path, tmp_path / "triton").exit_code == 0
    given = ("--storage-uri", "s3://b/x", "--image", "registry.example/edgekit:1.0.0")
    assert export("kserve", path, tmp_path / "kserve", *given).exit_code == 0
    for name in written(tmp_path / "triton/two"):
        other = (tmp_path / "kserve/repository/two" / name).read_bytes()
        assert (tmp_path / "triton/two" / name).read_bytes() == other


@pytest.mark.parametrize("name", ["two-onnx", "two-openvino", "two-tflite", "five"])
def test_openvinos_own_file_answers_each_input_by_its_name(
    name: str, folder: Path, tmp_path: Path, export: Export
) -> None:
    import openvino

    done = export("ovms", folder / f"{name}.edge.zip", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    [home] = [each / "1" for each in (tmp_path / "out").iterdir() if each.is_dir()]
    [file] = [path for path in home.iterdir() if path.suffix != ".bin"]
    compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    model = load(folder / f"{name}.edge.zip", trial=False)
    for sample in samples(5, FIVE) if name == "five" else samples(5):
        names = [each.name for each in model.manifest.inputs]
        found = compiled({own: x[None] for own, x in zip(names, sample.values(), strict=True)})[0]
        np.testing.assert_allclose(found, [model.execute(model.prepare(vectors([sample])[0]))], atol=1e-4)


def test_tensorrt_is_refused_in_one_line(folder: Path, tmp_path: Path, export: Export) -> None:
    done = export("tensorrt", folder / "two-onnx.edge.zip", tmp_path / "out")
    assert done.exit_code == 5
    assert "its model has 2 inputs, but this export takes models with one; use edgekit export triton" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def running(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton with the export of every bundle, on its Python backend."""
    triton.need()
    from edgekit.serve import export as servers

    home = tmp_path_factory.mktemp("triton")
    servers.export("triton", folder, home / "repository", servers.ExportRequest(backend="python"))
    with triton.server(home / "repository", home / "server") as found:
        yield found


def ask(running: Running, model: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Status and JSON."""
    http_request = urllib.request.Request(f"http://{running.http}/v2/models/{model}/infer", body, headers)
    try:
        with urllib.request.urlopen(http_request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.serving
@pytest.mark.parametrize("target", TARGETS)
def test_triton_gives_the_runners_answers(target: str, running: Running, folder: Path) -> None:
    model = load(folder / f"two-{target}.edge.zip", trial=False)
    many = samples(20)
    for first in range(0, 20, 5):
        part = [dict(reversed(each.items())) for each in many[first : first + 5]]
        status, answer = ask(running, f"two-{target}", *request(part, iter((True, False))))
        assert status == 200, answer
        outputs = {each["name"]: each["data"] for each in answer["outputs"]}
        expected = [model.execute(model.prepare(x)) for x in vectors(many[first : first + 5])]
        np.testing.assert_allclose(np.reshape(outputs["scores"], (5, 5)), expected, atol=1e-5)
        for text, sample in zip(outputs["answer"], many[first : first + 5], strict=True):
            assert wire_answer(json.loads(text))["label"] == model.predict(sample).label


@pytest.mark.serving
def test_triton_hands_on_all_datatypes_and_refuses_what_would_be_rounded(running: Running) -> None:
    many = samples(4, FIVE)
    status, answer = ask(running, "five", *request(many, iter((True,) * 5)))
    assert status == 200, answer
    [scores] = [each["data"] for each in answer["outputs"] if each["name"] == "scores"]
    assert np.array(scores, np.float32).tobytes() == vectors(many).tobytes()
    many[2]["large"][0] = LARGEST + 1
    status, answer = ask(running, "five", *request(many, iter((True,) * 5)))
    assert status == 400 and "large" in answer["error"]


@pytest.mark.serving
def test_triton_refuses_a_body_of_bytes_alone_too(running: Running) -> None:
    status, answer = ask(running, "two-onnx", bytes(88), {"Inference-Header-Content-Length": "0"})
    assert status == 400 and "1 input" in answer["error"], answer


@pytest.mark.serving
@pytest.mark.parametrize("name", BAD)
def test_triton_refuses_what_our_server_refuses(name: str, running: Running) -> None:
    inputs, _ = BAD[name]
    body = json.dumps({"inputs": inputs} if inputs is not None else {}).encode()
    status, answer = ask(running, "two-onnx", body, {})
    assert status in (400, 500) and answer["error"]  # 500 for what is no request of the protocol
