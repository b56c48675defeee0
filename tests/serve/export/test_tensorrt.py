"""`edgekit export tensorrt`: files for compilers that do not run here, and what it says of that."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner import bundle
from edgekit.runner.loader import load
from tests.serve.export.conftest import Export, written

UNVERIFIED = "prepared, not verified"


def test_an_onnx_bundle_gives_the_file_the_commands_and_vectors(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    done = export("tensorrt", bundles["onnx"], out)
    assert done.exit_code == 0, done.stderr
    assert UNVERIFIED in done.stdout
    golden = ["tiny/golden/input_0.bin", "tiny/golden/inputs.npy", "tiny/golden/outputs.npy"]
    assert written(out) == ["README.md", "export.json", *golden, "tiny/model.onnx", "tiny/operators.txt"]
    assert (out / "tiny/model.onnx").read_bytes() == bundle.read(bundles["onnx"]).members["model.onnx"]
    text = (out / "README.md").read_text()
    assert UNVERIFIED in text.lower() and "AWS Neuron does not compile ONNX" in text
    assert "trtexec --onnx=model.onnx" in text and "--loadInputs=input:golden/input_0.bin" in text


def test_the_operators_are_those_of_the_file(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    import onnx

    export("tensorrt", bundles["onnx"], tmp_path / "out")
    graph = onnx.load_from_string((tmp_path / "out/tiny/model.onnx").read_bytes()).graph
    listed = {line.split("\t")[0] for line in (tmp_path / "out/tiny/operators.txt").read_text().splitlines()}
    assert listed == {node.op_type for node in graph.node}


def test_the_vectors_are_the_models_own_tensors(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    import onnxruntime

    out = tmp_path / "out"
    export("tensorrt", bundles["onnx"], out)
    inputs, outputs = (np.load(out / f"tiny/golden/{word}.npy", allow_pickle=False) for word in ("inputs", "outputs"))
    session = onnxruntime.InferenceSession((out / "tiny/model.onnx").read_bytes())
    for x, expected in zip(inputs, outputs, strict=True):
        (found,) = session.run(None, {"input": x[None]})
        assert np.abs(found[0] - expected).max() <= 1e-4
    assert (out / "tiny/golden/input_0.bin").read_bytes() == inputs[0].tobytes()


def test_an_int8_tflite_bundle_goes_to_edgetpu(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    out = tmp_path / "out"
    done = export("tensorrt", bundles["tflite-int8"], out)
    assert done.exit_code == 0, done.stderr
    assert "EdgeTPU" in done.stdout and UNVERIFIED in done.stdout
    text = (out / "README.md").read_text()
    assert "edgetpu_compiler --show_operations model.tflite" in text and "trtexec" not in text
    inputs = np.load(io.BytesIO((out / "tiny/golden/inputs.npy").read_bytes()), allow_pickle=False)
    model = load(bundles["tflite-int8"], trial=False)
    assert inputs.dtype == np.int8
    assert (inputs[0] == model.prepare(model.golden()[0][0])[0]).all()
    assert "CONV_2D" in (out / "tiny/operators.txt").read_text()


@pytest.mark.parametrize(("key", "word"), [("openvino", "openvino bundle"), ("tflite", "takes float32")])
def test_what_no_compiler_takes_is_refused_in_words(
    key: str, word: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    done = export("tensorrt", bundles[key], tmp_path / "out")
    assert done.exit_code == 5
    assert word in done.stderr and "export the onnx or an int8 tflite bundle" in done.stderr
    assert not (tmp_path / "out").exists()
