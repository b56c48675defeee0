"""`edgekit bundle` of models with open sides, or with weights elsewhere: repaired, or refused with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.core.errors import ModelError
from edgekit.runner import load
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.cli.test_bundle import bundle_in, edgekit, last_output

LABELS = ("--labels", "a,b,c")


class Pooled(torch.nn.Module):
    """Pictures of any size to three scores."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.dense(self.conv(x).relu().mean((2, 3))))


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return Pooled().eval()


@pytest.fixture(scope="module")
def open_onnx(network: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batch, height and width are open."""
    path = tmp_path_factory.mktemp("open") / "open.onnx"
    sides = {"x": {0: "n", 2: "height", 3: "width"}}
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 16, 16),),
        path,
        dynamo=True,
        verbose=False,
        dynamic_shapes=sides,
        external_data=False,
    )
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    (tmp_path / "golden").mkdir()
    for number, sample in enumerate(np.random.default_rng(1).integers(0, 256, (6, 12, 20, 3)).astype(np.uint8)):
        np.save(tmp_path / "golden" / f"{number}.npy", sample)
    return tmp_path / "golden"


def converted(target: str, path: Path, folder: Path) -> Path:
    if target == "onnx":
        return path
    import openvino

    openvino.save_model(openvino.Core().read_model(path), folder / "open.xml", compress_to_fp16=False)
    return folder / "open.xml"


@pytest.mark.parametrize(("target", "resized"), [("onnx", True), ("onnx", False), ("openvino", True)])
def test_an_open_height_and_width_are_set_to_what_comes_in(
    target: str, resized: bool, network: torch.nn.Module, open_onnx: Path, pictures: Path, tmp_path: Path
) -> None:
    model = converted(target, open_onnx, tmp_path)
    steps = "[{step: resize, height: 8, width: 10}]" if resized else "[]"
    words = ("--golden", pictures, *LABELS, "--size", "12x20", "--preprocess", steps, "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 0, last_output()
    inside = (8, 10) if resized else (12, 20)
    assert f"changed     its open height and width were set to {inside[0]}×{inside[1]}" in last_output()
    loaded = load(bundle_in(tmp_path / "out"), trial=False)
    assert loaded.manifest.raw.shape == (12, 20, 3)
    assert loaded.manifest.input.shape == (1, 3, *inside)
    raw = np.load(pictures / "3.npy")
    with torch.inference_mode():
        expected = network(torch.from_numpy(loaded.prepare(raw))).numpy()[0]
    assert np.allclose(loaded.execute(loaded.prepare(raw)), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_without_a_size_the_option_is_named(target: str, open_onnx: Path, pictures: Path, tmp_path: Path) -> None:
    words = ("--golden", pictures, *LABELS, "--out", tmp_path / "out")
    assert edgekit("bundle", converted(target, open_onnx, tmp_path), *words) == 4
    assert "is open; give their size with --size HEIGHTxWIDTH" in last_output()
    assert "damaged" not in last_output()


def test_the_error_for_a_tflite_file_with_open_sides_says_what_to_do(pictures: Path, tmp_path: Path) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    source = tf.keras.Input((None, None, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(tf.keras.layers.Conv2D(4, 3)(source))
    model = tf.keras.Model(source, tf.keras.layers.Dense(3)(pooled))
    path = tmp_path / "open.tflite"
    path.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    words = ("--golden", pictures, *LABELS, "--size", "12x20", "--out", tmp_path / "out")
    assert edgekit("bundle", path, *words) == 4
    assert "takes [1, ?, ?, 3]" in last_output() and "keras.Input((HEIGHT, WIDTH, CHANNELS))" in last_output()
    assert "damaged" not in last_output()


def test_the_error_for_weights_in_another_file_names_them(open_onnx: Path, pictures: Path, tmp_path: Path) -> None:
    import onnx

    onnx.save(
        onnx.load(open_onnx), tmp_path / "far.onnx", save_as_external_data=True, location="far.data", size_threshold=0
    )
    words = ("--golden", pictures, *LABELS, "--size", "12x20", "--out", tmp_path / "out")
    assert edgekit("bundle", tmp_path / "far.onnx", *words) == 4
    assert "keeps its weights in other files; make one file of it: python -c" in last_output()
    assert "damaged" not in last_output() and "cut short" not in last_output()


def test_a_truncated_file_is_still_reported(open_onnx: Path, pictures: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(open_onnx.read_bytes()[:500])
    assert edgekit("bundle", path, "--golden", pictures, *LABELS, "--out", tmp_path / "out") == 4
    assert "cut short or damaged" in last_output()


NET = """<net name="n" version="11"><layers><layer id="0" name="x" type="{kind}" version="{opset}">
<data {data}/><output><port id="0" precision="FP32"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="1" name="y" type="Result" version="opset1"><input><port id="0"><dim>1</dim><dim>4</dim></port></input>
</layer></layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>"""


@pytest.mark.parametrize(
    ("kind", "opset", "data", "instead"),
    [
        ("Unheard", "opset1", "", "it is not damaged: export it again with operators that its interpreter has"),
        ("Const", "opset1", 'element_type="f32" shape="1,4" offset="0" size="16"', "its .bin is cut short"),
    ],
)
def test_a_whole_file_that_cannot_be_opened_is_not_called_damaged(
    kind: str, opset: str, data: str, instead: str, pictures: Path, tmp_path: Path
) -> None:
    path = tmp_path / "net.xml"
    path.write_text(NET.format(kind=kind, opset=opset, data=data))
    path.with_suffix(".bin").write_bytes(b"\0\0")
    assert edgekit("bundle", path, "--golden", pictures, *LABELS, "--out", tmp_path / "out") == 4
    assert "cannot be opened" in last_output() and instead in last_output(), last_output()


def flat(path: Path, values: int, end: str, dtype: str) -> Path:
    """Four features, a dense layer, and one operator behind it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).normal(0, 1, (4, values)).astype(np.float32)
    options = {"axis": 1, "keepdims": 0} if end == "ArgMax" else {}
    nodes = [
        helper.make_node("MatMul", ["input", "dense"], ["linear"]),
        helper.make_node(end, ["linear"], ["answer"], **options),
    ]
    source = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 4])
    shape = [1] if end == "ArgMax" else [1, values]
    result = helper.make_tensor_value_info("answer", getattr(TensorProto, dtype), shape)
    graph = helper.make_graph(nodes, "flat", [source], [result], [numpy_helper.from_array(weights, "dense")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    np.save(path.parent / "sample.npy", np.arange(4, dtype=np.float32))
    return path


def test_the_suggested_line_cuts_off_an_argmax(tmp_path: Path) -> None:
    model = flat(tmp_path / "net.onnx", 3, "ArgMax", "INT64")
    words = ("--golden", tmp_path / "sample.npy", *LABELS, "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words) == 4
    assert "ends in an argmax, which gives a class but no scores" in last_output()
    code = last_output().partition('python -c "')[2].rpartition('"')[0]
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert edgekit("bundle", tmp_path / "scores.onnx", *words) == 0, last_output()


def test_the_error_for_a_single_sigmoid_says_what_it_may_be(tmp_path: Path) -> None:
    model = flat(tmp_path / "net.onnx", 1, "Sigmoid", "FLOAT")
    words = ("--golden", tmp_path / "sample.npy", "--out", tmp_path / "out")
    assert edgekit("bundle", model, *words, "--labels", "no,yes") == 2
    assert (
        "--task regression with its name in --labels" in last_output()
        and "torch.cat([1 - p, p], dim=1)" in last_output()
    )
    assert edgekit("bundle", model, *words, "--labels", "yes", "--task", "regression") == 0, last_output()


@pytest.mark.parametrize(
    ("end", "values", "dtype", "message"),
    [("Sigmoid", 1, "FLOAT", r"torch\.cat\(\[1 - p, p\]"), ("ArgMax", 2, "INT64", "export it without its argmax")],
)
def test_and_so_it_is_where_such_a_file_is_the_source(
    end: str, values: int, dtype: str, message: str, tmp_path: Path
) -> None:
    model = flat(tmp_path / "net.onnx", values, end, dtype)
    samples = np.random.default_rng(1).normal(0, 1, (8, 4)).astype(np.float32)
    with pytest.raises(ModelError, match=message):
        logits_and_facts(open_file(model), samples, classes=2, timeout_s=60)
