"""`edgekit export triton`: the repository's files, and a real Triton that loads it and answers the golden samples."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.loader import load
from edgekit.serve.export import _formats
from edgekit.targets.fold_preprocess import Affine
from edgekit.targets.onnx.inputs import take_raw_bytes
from tests.runner.conftest import ModelFiles, WriteBundle, onnx_model
from tests.serve import triton
from tests.serve.export.conftest import Export, written
from tests.serve.triton import Running

PYTHON = ["tiny/1/bundle.edge.zip", "tiny/1/edgerun.pyz", "tiny/1/model.py"]
NATIVE = {"onnx": ["tiny/1/model.onnx"], "openvino": ["tiny/1/model.bin", "tiny/1/model.xml"]}
AROUND = ["README.md", "export.json"]
BESIDE = ["tiny/config.pbtxt", "tiny/labels.txt"]


@pytest.mark.parametrize("key", ["onnx", "openvino"])
def test_native_backends_get_the_model_file_itself(
    key: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    done = export("triton", bundles[key], out)
    assert done.exit_code == 0, done.stderr
    assert written(out) == sorted([*AROUND, *BESIDE, *NATIVE[key]])
    members = bundle.read(bundles[key]).members
    assert all((out / path).read_bytes() == members[Path(path).name] for path in NATIVE[key])
    for text in (done.stdout, (out / "README.md").read_text()):
        assert "Clients send the preprocessed tensor" in text and "repared, not verified" in text


@pytest.mark.parametrize("server", ["triton", "tensorrt", "ovms"])
def test_a_file_that_holds_the_steps_is_sent_bytes(
    server: str, models: dict[str, ModelFiles], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    scale = Affine(np.array([1 / 255], np.float32), np.zeros(1, np.float32))
    content, inputs, _ = take_raw_bytes(onnx_model(), scale, (models["onnx"].input,))
    folded = replace(models["onnx"], files={"model.onnx": content}, input=inputs[0])
    done = export(server, write_bundle(folded), tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "out/README.md").read_text()
    assert "Clients send the sample's bytes" in text and "- Preprocess steps, in the file:" in text
    assert "preprocessed tensor" not in text + done.stdout and "zero point" not in text


@pytest.mark.parametrize(("key", "options"), [("tflite", ()), ("onnx", ("--backend", "python"))])
def test_the_python_backend_gets_the_bundle_and_the_runner(
    key: str, options: tuple[str, ...], bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    done = export("triton", bundles[key], out, *options)
    assert done.exit_code == 0, done.stderr
    assert written(out) == sorted([*AROUND, *BESIDE, *PYTHON])
    assert (out / "tiny/1/bundle.edge.zip").read_bytes() == bundles[key].read_bytes()
    for text in (done.stdout, (out / "README.md").read_text()):
        assert "Clients send the raw sample" in text


def test_the_runner_beside_the_bundle_works_alone(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    export("triton", bundles["tflite"], tmp_path / "out")
    folder = tmp_path / "out/tiny/1"
    words = [sys.executable, str(folder / "edgerun.pyz"), "selftest", str(folder / "bundle.edge.zip")]
    subprocess.run(words, check=True, capture_output=True)


def test_what_no_native_backend_takes_is_refused(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    done = export("triton", bundles["tflite"], tmp_path / "out", "--backend", "native")
    assert done.exit_code == 5 and "--backend python" in done.stderr
    done = export("triton", bundles["tflite"], tmp_path / "out", "--backend", "tensorrt")
    assert done.exit_code == 2 and "native or python" in done.stderr


def test_labels_that_do_not_fill_a_line_each_are_left_out(
    models: dict[str, Any], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    odd = write_bundle(models["onnx"], labels=["circle", "", "star"])
    assert export("triton", odd, tmp_path / "out").exit_code == 0
    assert "tiny/labels.txt" not in written(tmp_path / "out")
    assert "label_filename" not in (tmp_path / "out/tiny/config.pbtxt").read_text()


def test_a_tensors_name_cannot_leave_its_quotes() -> None:
    quoted = _formats.quoted('a"\n} backend: "ä\\')
    assert re.fullmatch(r'"(?:[^"\\\n]|\\[0-7]{3})*"', quoted)


@pytest.fixture
def parsed(tmp_path: Path) -> Any:
    triton.need()

    def parse(path: Path) -> dict[str, Any]:
        words = [str(triton.PYTHON), str(Path(__file__).with_name("text_format.py")), str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return parse


@pytest.mark.serving
@pytest.mark.parametrize(
    ("key", "options", "backend", "source"),
    [
        ("onnx", (), "onnxruntime", {"name": "input", "data_type": "TYPE_FP32", "dims": ["1", "1", "8", "8"]}),
        ("openvino", (), "openvino", {"name": "input", "data_type": "TYPE_FP32", "dims": ["1", "1", "8", "8"]}),
        ("tflite-int8", (), "python", {"name": "raw", "data_type": "TYPE_UINT8", "dims": ["8", "8", "1"]}),
        (
            "onnx",
            ("--backend", "python"),
            "python",
            {"name": "raw", "data_type": "TYPE_UINT8", "dims": ["8", "8", "1"]},
        ),
    ],
)
def test_tritons_own_protobuf_reads_the_configuration(
    key: str,
    options: tuple[str, ...],
    backend: str,
    source: dict[str, Any],
    bundles: dict[str, Path],
    tmp_path: Path,
    export: Export,
    parsed: Any,
) -> None:
    assert export("triton", bundles[key], tmp_path / "out", *options).exit_code == 0
    config = parsed(tmp_path / "out/tiny/config.pbtxt")
    assert (config["name"], config["backend"]) == ("tiny", backend)
    assert config["input"] == [source]
    assert config["parameters"]["edgekit_version"]["string_value"] == "1.2.0"
    assert config.get("max_batch_size", 0) == (32 if backend == "python" else 0)


@pytest.mark.serving
@pytest.mark.parametrize("name", ['a"b', "line\nbreak", "back\\slash", "umlaut ä", "} backend: 3"])
def test_odd_names_reach_triton_as_they_are(name: str, tmp_path: Path, parsed: Any) -> None:
    port = _formats.Port(name, "float32", (1, 3))
    path = tmp_path / "config.pbtxt"
    path.write_bytes(_formats.pbtxt(_formats.Config("m", "onnxruntime", 0, [port], [port], {"key": name})))
    config = parsed(path)
    assert config["input"][0]["name"] == name and config["parameters"]["key"]["string_value"] == name
    assert config["backend"] == "onnxruntime"


KEYS = ("tflite", "tflite-int8", "onnx", "openvino")


@pytest.fixture(scope="module")
def running(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Triton that serves the handmade network of every target, each by the export of its bundle."""
    from edgekit.serve import export as servers

    home = tmp_path_factory.mktemp("triton")
    for key in KEYS:
        servers.export("triton", bundles[key], home / key, servers.ExportRequest(backend="python"))
        config = home / key / "tiny" / "config.pbtxt"
        config.write_text(config.read_text().replace('name: "tiny"', f'name: "{key}"'))
        (home / "repository").mkdir(exist_ok=True)
        (home / key / "tiny").rename(home / "repository" / key)
    with triton.server(home / "repository", home / "server") as found:
        yield found


def ask(running: Running, model: str, raws: np.ndarray, **changes: Any) -> tuple[int, dict[str, Any]]:
    """Status and JSON of one request of the Open Inference Protocol."""
    import urllib.error
    import urllib.request

    dtype = {"uint8": "UINT8", "float32": "FP32"}[str(raws.dtype)]
    tensor = {"name": "raw", "shape": list(raws.shape), "datatype": dtype, "data": raws.ravel().tolist(), **changes}
    body = json.dumps({"inputs": [tensor]}).encode()
    request = urllib.request.Request(f"http://{running.http}/v2/models/{model}/infer", body)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


@pytest.mark.serving
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("batch", [1, 16])
def test_triton_answers_every_golden_vector(key: str, batch: int, running: Running, bundles: dict[str, Path]) -> None:
    model = load(bundles[key], trial=False)
    raws, expected = model.golden()
    for start in range(0, len(raws), batch):
        status, answer = ask(running, key, raws[start : start + batch])
        assert status == 200, answer
        outputs = {output["name"]: output for output in answer["outputs"]}
        scores = np.array(outputs["scores"]["data"]).reshape(outputs["scores"]["shape"])
        assert np.abs(scores - expected[start : start + batch]).max() <= model.manifest.golden["atol"]
        for raw, text in zip(raws[start : start + batch], outputs["answer"]["data"], strict=True):
            triton_answer, runner_answer = json.loads(text), model.predict(raw).to_dict()
            assert triton_answer["label"] == runner_answer["label"]


@pytest.mark.serving
def test_triton_refuses_what_does_not_fit_and_goes_on(running: Running, bundles: dict[str, Path]) -> None:
    raws, _ = load(bundles["onnx"], trial=False).golden()
    wide = {"shape": [1, 8, 8, 2], "data": [0] * 128}
    for changes in (wide, {"datatype": "FP32"}, {"name": "input"}):
        status, answer = ask(running, "onnx", raws[:1], **changes)
        assert status == 400 and answer["error"]
    assert ask(running, "nobody", raws[:1])[0] in (400, 404)
    assert ask(running, "onnx", raws[:1])[0] == 200


@pytest.mark.serving
def test_a_sample_out_of_range_fails_its_own_request_alone(
    models: dict[str, Any], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    """The bundle's own check of the sample runs on the server, and the next request is answered."""
    images = np.random.default_rng(2).random((4, 8, 8, 1), dtype=np.float32)
    raw = RawSpec("image", (8, 8, 1), "float32", range=(0.0, 1.0))
    from tests.runner.conftest import reference

    path = write_bundle(models["onnx"], images=images, scores=reference(images * 255), raw=raw, preprocess=[])
    assert export("triton", path, tmp_path / "out", "--backend", "python").exit_code == 0
    with triton.server(tmp_path / "out", tmp_path / "server") as running:
        status, answer = ask(running, "tiny", images[:1] + 7)
        assert status == 400 and "the bundle takes 0 to 1" in answer["error"]
        assert ask(running, "tiny", images[:1])[0] == 200


@pytest.mark.serving
def test_triton_does_not_load_a_bundle_that_was_changed(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    assert export("triton", bundles["tflite"], tmp_path / "out").exit_code == 0
    path = tmp_path / "out/tiny/1/bundle.edge.zip"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with triton.server(tmp_path / "out", tmp_path / "server", any_model=True) as running:
        assert "failed to load" in running.log_text()
        status, _ = ask(running, "tiny", np.zeros((1, 8, 8, 1), np.uint8))
        assert status in (400, 404, 503)


@pytest.mark.serving
def test_nothing_of_triton_is_left_running(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    assert export("triton", bundles["tflite"], tmp_path / "out").exit_code == 0
    with triton.server(tmp_path / "out", tmp_path / "server"):
        assert processes_with(str(tmp_path / "server")), "the stub's command line names its folder"
    assert not processes_with(str(tmp_path / "server"))


def processes_with(word: str) -> list[str]:
    """Command lines of running processes that hold a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found
