"""`edgekit bundle MODEL`: a finished file becomes a bundle that passes its self-test, or one line says why not."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.cli import app
from edgekit.runner import bundle as bundles
from edgekit.runner import load
from edgekit.runner.batch import open_batch
from edgekit.runner.errors import BackendError
from tests import requirements
from tests.conftest import run_edgekit
from tests.runner import conftest as tiny
from tests.runner.broken import tflite
from tests.runner.flat import coded, form, riff

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPES = ",".join(tiny.LABELS)
SCALE = "[{step: scale, factor: 0.00392156862745098}]"
RATE_HZ = 8000


def edgekit(*words: object) -> int:
    """The command in this process; its exit code."""
    from typer.testing import CliRunner

    result = CliRunner().invoke(app.app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    edgekit.output = result.output  # type: ignore[attr-defined]
    return int(result.exit_code)


def last_output() -> str:
    """What the last command printed."""
    return str(edgekit.output)  # type: ignore[attr-defined]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of the tiny network's samples as .npy."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, sample in enumerate(tiny.samples(40)):
        np.save(folder / f"{number:02d}.npy", sample)
    return folder


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    path = tmp_path / "shapes.onnx"
    path.write_bytes(tiny.onnx_model())
    return path


Write = Callable[..., Path]


@pytest.fixture
def network(tmp_path: Path) -> Write:
    """`network("Softmax", inputs=[...], …)` writes an ONNX file of one node over the flattened input."""

    def write(
        shape: Sequence[int | str],
        values: int = 3,
        end: str = "Identity",
        name: str = "made.onnx",
        dtype: str = "FLOAT",
        batch: int | str = 1,
    ) -> Path:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        size = int(np.prod([side for side in shape[1:] if isinstance(side, int)]))
        dense = np.random.default_rng(size).normal(0, 1, (size, values)).astype(np.float32)
        nodes = [
            helper.make_node("Cast", ["input"], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("Flatten", ["cast"], ["flat"]),
            helper.make_node("MatMul", ["flat", "dense"], ["linear"]),
            helper.make_node(end, ["linear"], ["scores"]),
        ]
        source = helper.make_tensor_value_info("input", getattr(TensorProto, dtype), list(shape))
        result = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, values])
        graph = helper.make_graph(nodes, "made", [source], [result], [numpy_helper.from_array(dense, "dense")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(model)
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return write


def bundle_in(folder: Path) -> Path:
    (path,) = folder.glob("*.edge.zip")
    return path


def test_the_real_thing_in_int8(photographs: Path, tmp_path: Path) -> None:
    """MLPerf Tiny's ResNet, real pictures: the accuracy on 2,000 of them is 77.25 %; here 400 must come out so."""
    model = requirements.data() / "models/pretrainedResnet_quant.tflite"
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(CLASSES) + "\n")
    out = tmp_path / "out"
    assert edgekit("bundle", model, "--golden", photographs, "--labels", labels, "--out", out) == 0, last_output()
    assert "activation  none" in last_output()
    loaded = load(bundle_in(out), trial=False)
    assert loaded.selftest().ok
    assert loaded.manifest.task == "classification"
    assert loaded.manifest.raw.shape == (32, 32, 3)
    inputs, outputs = loaded.golden()
    assert inputs.dtype == np.uint8
    assert len(inputs) == len(outputs) == 16
    assert loaded.manifest.golden["atol"] == pytest.approx(0.05 * np.ptp(outputs))
    assert 0.72 < accuracy(loaded, photographs) < 0.83
    answer = loaded.predict(inputs[0])
    assert sum(share for _, share in answer.top) <= 1.02


def test_the_real_thing_in_float(photographs: Path, tmp_path: Path) -> None:
    model = requirements.data() / "models/pretrainedResnet_large_float.tflite"
    out = tmp_path / "out"
    assert edgekit("bundle", model, "--golden", photographs, "--labels", ",".join(CLASSES), "--out", out) == 0, (
        last_output()
    )
    loaded = load(bundle_in(out), trial=False)
    assert loaded.manifest.golden["atol"] == pytest.approx(0.005 * np.ptp(loaded.golden()[1]))
    assert loaded.manifest.activation == "none"
    assert 0.76 < accuracy(loaded, photographs) < 0.87


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 test pictures of CIFAR-10, 40 of each class."""
    folder = tmp_path_factory.mktemp("cifar10")
    with zipfile.ZipFile(requirements.data() / "data/cifar10.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg"))
        assert len(names) == 10_000
        archive.extractall(folder, names[::25])
    return folder / "test"


def accuracy(model: object, photographs: Path) -> float:
    from edgekit.runner import inputs

    paths = sorted(photographs.glob("*/*.jpg"))
    right = [
        model.predict(inputs.read_first_sample(str(path), model.manifest.raw)).label == path.parent.name  # type: ignore[attr-defined]
        for path in paths
    ]
    assert len(right) == 400
    return float(np.mean(right))


def test_an_onnx_file(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    """Its answers are those of arithmetic written out by hand; what it was made from is recorded, without a path."""
    out = tmp_path / "new" / "out"
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--out", out)
    assert edgekit("bundle", onnx_file, *words, "--version", "2.1.0", "--architecture", os.uname().machine) == 0, (
        last_output()
    )
    assert sorted(os.listdir(out)) == ["edgerun.pyz", "shapes-onnx-2.1.0.edge.zip"]
    assert "NCHW" in last_output()
    assert "activation  softmax" in last_output()
    assert last_output().splitlines()[-1].startswith("next        scp ") and ".edge.zip} " in last_output()
    model = load(bundle_in(out), trial=False)
    inputs, outputs = model.golden()
    assert np.allclose(outputs, tiny.reference(inputs), atol=1e-4)
    manifest = model.manifest
    assert (manifest.labels, manifest.activation, manifest.variant) == (tiny.LABELS, "softmax", "ready-made-onnx")
    assert manifest.architectures == [os.uname().machine]
    assert model.bundle.members["model/model.onnx"] == onnx_file.read_bytes()
    assert manifest.provenance["source"] == "shapes.onnx"
    assert re.fullmatch("[0-9a-f]{64}", manifest.provenance["sha256"])
    assert set(manifest.provenance["libraries"]) == {"numpy", "onnxruntime"}
    assert str(tmp_path) not in model.bundle.text.decode()
    readme = model.bundle.members["README.md"].decode()
    assert "edgerun.pyz selftest shapes-onnx-2.1.0.edge.zip" in readme
    assert "scores of 3 classes" in readme
    assert "onnxruntime" in model.bundle.members["requirements.txt"].decode()


def test_the_clearest_answers_are_kept(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--golden-samples", 5, "--out", tmp_path)
    assert edgekit("bundle", onnx_file, *words) == 0, last_output()
    outputs = load(bundle_in(tmp_path), trial=False).golden()[1]
    scores = np.sort(tiny.reference(tiny.samples(40)[np.linspace(0, 39, 20).astype(int)]), axis=1)
    leads = np.sort(scores[:, -1] - scores[:, -2])[-5:]
    top = np.sort(outputs, axis=1)
    assert np.allclose(np.sort(top[:, -1] - top[:, -2]), leads, atol=1e-3)


def test_an_openvino_model(tmp_path: Path, pictures: Path) -> None:
    files = tiny.openvino_model(tmp_path)
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--name", "forms", "--out", tmp_path)
    assert edgekit("bundle", tmp_path / "model.xml", *words) == 0, last_output()
    model = load(tmp_path / "forms-openvino-1.0.0.edge.zip", trial=False)
    inputs, outputs = model.golden()
    assert np.allclose(outputs, tiny.reference(inputs), atol=1e-4)
    assert {f"model/{name}": data for name, data in files.items()} == model.bundle.model_files()
    assert len(model.manifest.provenance["bin_sha256"]) == 64
    (tmp_path / "model.bin").unlink()
    assert edgekit("bundle", tmp_path / "model.xml", *words) == 4
    assert "model.bin" in last_output()


def test_the_same_words_give_the_same_bytes(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE)
    for name in ("one", "two"):
        assert edgekit("bundle", onnx_file, *words, "--out", tmp_path / name) == 0
    assert bundle_in(tmp_path / "one").read_bytes() == bundle_in(tmp_path / "two").read_bytes()


def test_preprocess_from_a_file_or_a_config(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    steps = tmp_path / "steps.yaml"
    for text in ("- {step: scale, factor: 3.92156862745098e-3}\n", f"name: x\npreprocess: {SCALE}\n"):
        steps.write_text(text)
        words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", steps, "--out", tmp_path)
        assert edgekit("bundle", onnx_file, *words) == 0, last_output()
        assert bundles.read(bundle_in(tmp_path)).manifest.preprocess == [
            {"step": "scale", "factor": 0.00392156862745098}
        ]


def test_a_regression(tmp_path: Path, network: Write) -> None:
    model = network([1, 4], values=2)
    samples = np.random.default_rng(1).uniform(0, 1, (20, 4)).astype(np.float32)
    for number, sample in enumerate(samples):
        np.save(tmp_path / f"{number:02d}.npy", sample)
    words = ("--golden", tmp_path, "--labels", "height,weight", "--task", "regression", "--range", "0,1")
    assert edgekit("bundle", model, *words, "--golden-samples", 6, "--out", tmp_path / "out") == 0, last_output()
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    inputs, outputs = loaded.golden()
    assert len(inputs) == 6
    assert loaded.manifest.raw.range == (0, 1)
    assert not loaded.manifest.golden["top1"]
    assert loaded.predict(inputs[2]).values == dict(zip(["height", "weight"], outputs[2].tolist(), strict=True))
    np.save(tmp_path / "00.npy", samples[0] * 255)
    assert edgekit("bundle", model, *words, "--out", tmp_path / "none") == 4
    assert "00.npy" in last_output()
    assert not (tmp_path / "none").exists()


def test_raw_outputs_of_sounds(tmp_path: Path, network: Write) -> None:
    model, sounds = network([1, 400], values=5, end="Tanh"), tmp_path / "sounds"
    sounds.mkdir()
    for number in range(3):
        data = coded([(7 * number * each) % 30_000 for each in range(400)], 16)
        (sounds / f"{number}.wav").write_bytes(riff(form(1, 16), data))
    words = ("--golden", sounds, "--task", "raw", "--sample-rate", RATE_HZ, "--out", tmp_path)
    assert edgekit("bundle", model, *words) == 0, last_output()
    loaded = load(bundle_in(tmp_path), trial=False)
    assert (loaded.manifest.raw.kind, loaded.manifest.raw.sample_rate_hz) == ("audio", RATE_HZ)
    assert loaded.manifest.raw.range == (-1, 1)
    inputs, outputs = loaded.golden()
    assert np.array_equal(loaded.predict(inputs[1]).output, outputs[1])
    assert "predict made-onnx-1.0.0.edge.zip sound.wav" in loaded.bundle.members["README.md"].decode()


def test_windows(tmp_path: Path, network: Write) -> None:
    model, windows = network([1, 16, 3]), tmp_path / "windows"
    windows.mkdir()
    for number, sample in enumerate(np.random.default_rng(4).normal(0, 5, (9, 16, 3)).astype(np.float32)):
        np.save(windows / f"{number}.npy", sample)
    steps = "[{step: normalize, mean: [0, 0.5, 1], std: [1, 2, 3]}]"
    words = ("--golden", windows, "--labels", "rest,run,walk", "--preprocess", steps, "--out", tmp_path)
    assert edgekit("bundle", model, *words) == 0, last_output()
    loaded = load(bundle_in(tmp_path), trial=False)
    raw = loaded.manifest.raw
    assert (raw.kind, raw.shape, raw.dtype, raw.columns) == ("window", (16, 3), "float32", None)
    assert loaded.selftest().ok
    assert "predict made-onnx-1.0.0.edge.zip sample.npy" in loaded.bundle.members["README.md"].decode()
    for more, message in (
        (("--kind", "vector"), "does not fit that kind"),
        (("--dtype", "uint8"), "windows"),
        (("--layout", "NHWC"), "not an image"),
    ):
        assert edgekit("bundle", model, *words, *more) == 2 and message in last_output()


def test_probabilities_are_distinguished_from_logits(tmp_path: Path, network: Write) -> None:
    for number, sample in enumerate(np.random.default_rng(2).normal(0, 1, (9, 6)).astype(np.float32)):
        np.save(tmp_path / f"{number}.npy", sample)
    cases = [("Sigmoid", "auto", "none"), ("Softmax", "softmax", "softmax"), ("Identity", "auto", "softmax")]
    cases += [("Softmax", "auto", "none")]
    for end, requested, activation in cases:
        model = network([1, 6], end=end)
        words = ("--golden", tmp_path, "--labels", "a,b,c", "--activation", requested, "--out", tmp_path / "out")
        assert edgekit("bundle", model, *words) == 0, last_output()
        assert bundles.read(bundle_in(tmp_path / "out")).manifest.activation == activation
        assert ("as requested" in last_output()) == (requested != "auto")


def test_an_open_batch_is_set_to_one_and_reported(tmp_path: Path, network: Write) -> None:
    import openvino

    np.save(tmp_path / "0.npy", np.ones(6, np.float32))
    model = network(["batch", 6], batch="batch")
    words = ("--golden", tmp_path / "0.npy", "--labels", "a,b,c", "--out")
    assert edgekit("bundle", model, *words, tmp_path / "onnx") == 0, last_output()
    assert "its open batch was set to 1" in last_output()
    assert bundles.read(bundle_in(tmp_path / "onnx")).manifest.provenance["changes"] == ["its open batch was set to 1"]
    openvino.save_model(openvino.Core().read_model(model), tmp_path / "open.xml", compress_to_fp16=False)
    assert edgekit("bundle", tmp_path / "open.xml", *words, tmp_path / "ir") == 0, last_output()
    assert "its open batch was set to 1" in last_output()
    outputs = [load(bundle_in(tmp_path / name), trial=False).golden()[1] for name in ("onnx", "ir")]
    with pytest.raises(
        BackendError, match="fixes its batch at 1; `edgekit bundle` sets the batch of an ONNX file to 1"
    ):
        open_batch(load(bundle_in(tmp_path / "onnx"), trial=False, interpreter="onnxruntime"), 4)
    assert open_batch(load(bundle_in(tmp_path / "ir"), trial=False), 4).size == 4
    assert np.allclose(*outputs, atol=1e-5)


def test_pictures_are_resized_from_the_given_size(tmp_path: Path, network: Write) -> None:
    from PIL import Image

    rng = np.random.default_rng(3)
    for number in range(4):
        pixels = rng.integers(0, 256, (10, 12, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    steps = "[{step: channels, count: 1}, {step: resize, height: 6, width: 6}]"
    model = network([1, 6, 6, 1])
    words = ("--golden", tmp_path, "--labels", "a,b,c", "--preprocess", steps, "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 2
    assert "--size" in last_output()
    assert edgekit("bundle", model, *words, "--size", "10x12") == 0, last_output()
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    assert loaded.manifest.raw.shape == (10, 12, 3)
    assert np.array_equal(loaded.golden()[0][3], np.asarray(Image.open(tmp_path / "3.png")))


def test_channels_first_or_last_is_asked_where_both_may_be(tmp_path: Path, network: Write) -> None:
    np.save(tmp_path / "0.npy", np.zeros((8, 3, 3), np.uint8))
    model = network([1, 3, 8, 3])
    words = ("--golden", tmp_path / "0.npy", "--labels", "a,b,c", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 2
    assert "--layout" in last_output()
    assert edgekit("bundle", model, *words, "--layout", "NCHW") == 0, last_output()
    assert bundles.read(bundle_in(tmp_path / "out")).manifest.raw.shape == (8, 3, 3)


FAULTS = {
    "a flag that is none": (["--labls", "a,b,c"], 2, "--labls"),
    "labels too few": (["--labels", "a,b"], 2, "2 labels (a … b), but the model gives 3"),
    "a label twice": (["--labels", "a,b,a"], 2, "'a' is label 1 and 3; give each value a name of its own"),
    "an empty label": (["--labels", "a,,c"], 2, "label 2 of 3 is empty"),
    "no labels": ([], 2, "--labels"),
    "labels in a file that is not there": (["--labels", "names.txt"], 2, "no such file"),
    "labels for raw outputs": (["--labels", "a,b,c", "--task", "raw"], 2, "a raw output has no labels"),
    "softmax of a regression": (
        ["--labels", "a,b,c", "--task", "regression", "--activation", "softmax"],
        2,
        "no softmax",
    ),
    "a task that is none": (["--labels", "a,b,c", "--task", "keypoints"], 2, "keypoints"),
    "a step that is none": (["--labels", "a,b,c", "--preprocess", "[{step: scal}]"], 2, 'did you mean "scale"'),
    "steps that are no list": (["--labels", "a,b,c", "--preprocess", "steps.yaml"], 2, "neither a file nor a list"),
    "steps that are no YAML": (["--labels", "a,b,c", "--preprocess", "[{"], 2, "not valid YAML"),
    "another size": (["--labels", "a,b,c", "--size", "9x9"], 2, "[9, 9, 1]"),
    "a size that is none": (["--labels", "a,b,c", "--size", "9"], 2, "HEIGHTxWIDTH"),
    "a range that is none": (["--labels", "a,b,c", "--range", "1,0"], 2, "LOWEST,HIGHEST"),
    "a range of bytes": (["--labels", "a,b,c", "--range", "0,1", "--dtype", "uint8"], 2, "float32"),
    "another kind": (["--labels", "a,b,c", "--kind", "audio"], 2, "--kind audio"),
    "a rate of pictures": (["--labels", "a,b,c", "--sample-rate", "8000"], 2, "--sample-rate"),
    "the other layout": (["--labels", "a,b,c", "--layout", "NHWC"], 2, "which is NCHW"),
    "a name with a slash": (["--labels", "a,b,c", "--name", "a/b"], 2, "--name"),
    "a version that is none": (["--labels", "a,b,c", "--version", "1"], 2, "--version"),
    "a tolerance of everything": (["--labels", "a,b,c", "--tolerance", "7"], 2, "--tolerance"),
    "an architecture that is none": (["--labels", "a,b,c", "--architecture", "arm 64"], 2, "uname -m"),
    "pictures that are floats": (["--labels", "a,b,c", "--dtype", "float32"], 4, "the bundle takes float32[8, 8, 1]"),
    "an input that is not there": (["--labels", "a,b,c", "--golden", "nowhere"], 4, "nowhere"),
    "an input of another kind": (["--labels", "a,b,c", "--golden", __file__], 4, ".py"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_is_one_line(fault: str, tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words, code, message = FAULTS[fault]
    out = tmp_path / "out"
    assert edgekit("bundle", onnx_file, "--golden", pictures, *words, "--out", out) == code, last_output()
    assert message in " ".join(last_output().replace("│", " ").split())
    assert "Traceback" not in last_output()
    assert not out.exists()
    lines = [line for line in last_output().splitlines() if line.startswith("edgekit: ")]
    assert len(lines) == 1 or "Usage" in last_output()


def test_an_input_that_does_not_fit_is_named(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    np.save(pictures / "99.npy", np.zeros((8, 9, 1), np.uint8))
    words = ("--golden", pictures, "--labels", SHAPES, "--out", tmp_path / "out")
    assert edgekit("bundle", onnx_file, *words) == 4
    assert "99.npy: sample: got uint8[8, 9, 1]" in last_output()
    assert not (tmp_path / "out").exists()


def nothing_like_it(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    sample = folder / "sample.npy"
    np.save(sample, np.zeros(4, np.float32))
    assert edgekit("bundle", path, "--golden", sample, "--task", "raw", "--out", folder / "out") == 4, last_output()
    assert not (folder / "out").exists()
    (line,) = (line for line in last_output().splitlines() if line.startswith("edgekit: "))
    return line


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "an empty file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "a Keras or HDF5 file"),
        (b"PK\3\4" + bytes(100), "a zip archive"),
        (b"\x80\2}q\0." + bytes(100), "a Python pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\n<!doctype html><html>not found</html>", "a web page"),
        (b"hello there\n", "text that begins with 'hello there'"),
        (bytes(range(200, 255)), "begins with the bytes c8 c9"),
    ],
)
@pytest.mark.parametrize("suffix", [".tflite", ".onnx", ".xml", ".pt"])
def test_the_error_for_a_file_that_is_no_model_says_what_it_looks_like(
    tmp_path: Path, data: bytes, looks: str, suffix: str
) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    assert looks in nothing_like_it(tmp_path, f"model{suffix}", data)


def test_models_that_are_cut_short(tmp_path: Path, onnx_file: Path) -> None:
    whole = onnx_file.read_bytes()
    assert "cannot be" in nothing_like_it(tmp_path, "cut.onnx", whole[: len(whole) // 2])
    files = tiny.openvino_model(tmp_path)
    (tmp_path / "cut.bin").write_bytes(files["model.bin"])
    assert "cannot be opened" in nothing_like_it(tmp_path, "cut.xml", files["model.xml"][:900])
    (tmp_path / "short.bin").write_bytes(files["model.bin"][:9])
    assert "short.xml" in nothing_like_it(tmp_path, "short.xml", files["model.xml"])


def test_models_that_a_bundle_cannot_hold(tmp_path: Path, network: Write, onnx_file: Path) -> None:
    import onnx

    assert "its shape [1, ?] is open" in nothing_like_it(tmp_path, "o.onnx", network([1, "n"]).read_bytes())
    assert "a batch of 1" in nothing_like_it(tmp_path, "b.onnx", network([8, 4], batch=8).read_bytes())
    assert "int64" in nothing_like_it(tmp_path, "i.onnx", network([1, 4], dtype="INT64").read_bytes())
    assert "[1, 2, 1, 2, 1]" in nothing_like_it(tmp_path, "3.onnx", network([1, 2, 1, 2, 1]).read_bytes())
    assert "1 or 3 channels" in nothing_like_it(tmp_path, "c.onnx", network([1, 4, 2, 2]).read_bytes())
    model = onnx.load(onnx_file)
    two = onnx.ModelProto()
    two.CopyFrom(model)
    two.graph.output.append(onnx.helper.make_tensor_value_info("mean", onnx.TensorProto.FLOAT, [1, 4]))
    (tmp_path / "two.onnx").write_bytes(two.SerializeToString())
    assert edgekit("bundle", tmp_path / "two.onnx", "--golden", tmp_path / "sample.npy", "--out", tmp_path) == 4
    assert "has 2 outputs (scores, mean); a bundle's model has one output" in last_output()
    onnx.save(model, tmp_path / "far.onnx", save_as_external_data=True, location="far.data", size_threshold=0)
    line = nothing_like_it(tmp_path, "far.onnx", (tmp_path / "far.onnx").read_bytes())
    assert "onnx.save(onnx.load(" in line


def test_a_model_that_gives_nan_is_refused(tmp_path: Path, network: Write) -> None:
    np.save(tmp_path / "0.npy", np.full(4, -1, np.float32))
    model = network([1, 4], end="Sqrt")
    assert edgekit("bundle", model, "--golden", tmp_path / "0.npy", "--task", "raw", "--out", tmp_path / "out") == 5
    assert "0.npy: the model gave NaN" in last_output()
    assert not (tmp_path / "out").exists()


def test_an_earlier_bundle_survives_a_failure(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--preprocess", SCALE, "--out", tmp_path / "out")
    assert edgekit("bundle", onnx_file, *words, "--labels", SHAPES) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    np.save(pictures / "00.npy", np.zeros(3, np.uint8))
    assert edgekit("bundle", onnx_file, *words, "--labels", SHAPES) == 4
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_it_cannot_be_rebuilt_by_the_pipeline(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--out", tmp_path)
    assert edgekit("bundle", onnx_file, *words) == 0
    assert edgekit("reproduce", bundle_in(tmp_path), "--out", tmp_path / "again") == 2
    assert last_output().count("\n") == 1
    assert "ready-made file shapes.onnx" in last_output()
    assert not (tmp_path / "again").exists()


def test_the_command_as_a_process(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    """Nothing on standard error, and the runner that lies beside the bundle runs it."""
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--out", tmp_path)
    done = run_edgekit("bundle", str(onnx_file), *map(str, words))
    assert (done.returncode, done.stderr) == (0, "")
    command = [
        sys.executable,
        "-I",
        tmp_path / "edgerun.pyz",
        "predict",
        bundle_in(tmp_path),
        pictures / "03.npy",
        "--json",
    ]
    output = subprocess.run([*map(str, command), "--no-trial"], capture_output=True, text=True, check=True).stdout
    answer = json.loads(output)
    assert answer["label"] == tiny.LABELS[int(tiny.reference(tiny.samples(40)[3:4]).argmax())]
    assert sum(share for _, share in answer["top"]) == pytest.approx(1)


def test_no_framework_is_loaded(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    """The model is opened in other processes only: an interpreter that crashes must not take the command with it."""
    options = ["--golden", str(pictures), "--labels", SHAPES, "--preprocess", SCALE, "--out", str(tmp_path)]
    code = (
        "import sys; from edgekit.cli.app import app\n"
        f"app(['bundle', {str(onnx_file)!r}, *{options!r}], standalone_mode=False)\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"torch", "tensorflow", "onnx", "onnxruntime", "openvino", "ai_edge_litert", "papermill", "sklearn"}
    assert "numpy" in loaded
    assert not loaded & heavy
    assert bundle_in(tmp_path).exists()


def test_a_bundle_is_an_archive_that_any_tool_opens(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--out", tmp_path)
    assert edgekit("bundle", onnx_file, *words) == 0
    with zipfile.ZipFile(bundle_in(tmp_path)) as archive:
        assert archive.testzip() is None
        inputs = np.load(io.BytesIO(archive.read("golden/inputs.npy")))
    assert inputs.shape == (16, 8, 8, 1)


def test_a_model_that_crashes_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "crashing.tflite").write_bytes(tflite(claimed_side=4096))
    np.save(tmp_path / "0.npy", np.zeros((8, 8, 1), np.uint8))
    words = ("--golden", tmp_path / "0.npy", "--task", "raw", "--out", tmp_path / "out")
    assert edgekit("bundle", tmp_path / "crashing.tflite", *words) == 5
    assert "crashed its interpreter (SIGSEGV)" in last_output()
    assert not (tmp_path / "out").exists()
    (tmp_path / "sound.tflite").write_bytes(tflite())
    assert edgekit("bundle", tmp_path / "sound.tflite", *words) == 0, last_output()
    assert np.array_equal(load(bundle_in(tmp_path / "out"), trial=False).golden()[1], np.zeros((1, 8, 8, 1)))


def test_a_bundle_for_other_machines_is_made_here(tmp_path: Path, onnx_file: Path, pictures: Path) -> None:
    words = ("--golden", pictures, "--labels", SHAPES, "--preprocess", SCALE, "--out", tmp_path)
    assert edgekit("bundle", onnx_file, *words, "--architecture", "riscv64", "--architecture", "s390x") == 0, (
        last_output()
    )
    assert bundles.read(bundle_in(tmp_path)).manifest.architectures == ["riscv64", "s390x"]
