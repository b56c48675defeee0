"""Debris that is known, put into each format by hand and by its converter, is counted and named; nothing else is."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_runs import spec_of
from redundant_ops_files import onnx_file, openvino_file, tflite_file

from edgekit.models import store
from edgekit.targets.onnx import graph as onnx
from edgekit.targets.openvino import graph as openvino
from edgekit.targets.redundant_ops import RedundantOperator
from edgekit.targets.tflite import graph as tflite

LAYOUT_TARGETS = ("tflite", "openvino")
REFERENCE: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet8": ("resnet:resnet8", {}),
    "resnet20": ("resnet:resnet", {"depth": 20}),
    "ds_cnn": ("ds_cnn:ds_cnn", {}),
    "mobilenet_v1": ("mobilenet_v1:mobilenet_v1", {}),
    "mobilenet_v2": ("mobilenet_v2:mobilenet_v2", {}),
    "mobilenet_v3": ("mobilenet_v3:mobilenet_v3_small", {}),
    "mobilenet_v4": ("mobilenet_v4:mobilenet_v4_small", {}),
    "efficientnet_lite": ("efficientnet_lite:efficientnet_lite0", {}),
    "efficientnet_lite, TensorFlow": ("efficientnet_lite:efficientnet_lite0", {"padding": "tensorflow"}),
    "mcunet": ("mcunet:mcunet", {}),
    "repvgg": ("repvgg:repvgg", {}),
}


def kinds(findings: tuple[RedundantOperator, ...]) -> dict[str, int]:
    return dict(Counter(one.kind for one in findings if not one.compiled))


def save(folder: Path, builder: str, kwargs: dict[str, Any], shape: tuple[int, int, int]) -> Path:
    raw = {"kind": "image", "shape": [*shape[1:], shape[0]], "dtype": "uint8"}
    spec = store.ModelSpec(
        builder=builder, kwargs=kwargs, input_shape=shape, num_classes=4, classes=tuple("abcd"), raw=raw
    )
    store.save(folder, store.build(spec, seed=0), spec)
    return folder


def convert(
    model: Path, target: str, precision: str, out: Path, shape: tuple[int, int, int]
) -> tuple[RedundantOperator, ...]:
    calibration = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    found: tuple[RedundantOperator, ...] = (
        importlib.import_module(f"edgekit.targets.{target}.convert").convert(model, precision, calibration, out).debris
    )
    return found


@pytest.fixture(scope="module")
def turning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turning") / "model"
    spec = spec_of("turning")
    store.save(folder, store.build(spec, seed=0), spec)
    return folder


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_transpose_between_two_layers_is_named(turning: Path, tmp_path: Path, target: str) -> None:
    found = convert(turning, target, "fp32", tmp_path, (3, 8, 8))
    [one] = [one for one in found if not one.compiled]
    assert (one.kind, one.operator.upper()) == ("transpose", "TRANSPOSE")
    assert one.moved_bytes == 2 * 8 * 8 * 8 * 4  # in and out: 8 channels of 8 × 8 float32
    if target != "onnx":  # its exporter folds norms into weights, and names those alone
        before, behind = one.where.split(" → ")
        assert before.startswith("stem") and behind.startswith("deep")
    compiled = [one.kind for one in found if one.compiled]
    assert ("transpose" in compiled) == (target == "openvino")


@pytest.mark.parametrize("target", LAYOUT_TARGETS)
def test_no_transpose_inside_ds_cnn(target: str, tmp_path: Path) -> None:
    model = save(tmp_path / "model", "edgekit.models.ds_cnn:ds_cnn", {"width": 16, "blocks": 2}, (3, 16, 16))
    for precision in ("fp32", "int8"):
        found = convert(model, target, precision, tmp_path / precision, (3, 16, 16))
        assert [one for one in found if one.kind == "transpose"] == []
        assert kinds(found) == {}


@pytest.mark.long
@pytest.mark.parametrize("target", LAYOUT_TARGETS)
@pytest.mark.parametrize("network", REFERENCE)
def test_no_transpose_inside_any_reference_network(network: str, target: str, tmp_path: Path) -> None:
    builder, kwargs = REFERENCE[network]
    model = save(tmp_path / "model", f"edgekit.models.{builder}", kwargs, (3, 32, 32))
    for precision in ("fp32", "int8"):
        found = convert(model, target, precision, tmp_path / precision, (3, 32, 32))
        assert [one for one in found if one.kind == "transpose"] == []
        assert kinds(found) == {}


def test_every_reference_network_is_looked_at() -> None:
    folder = Path(store.__file__).parent
    sources = {path.stem for path in folder.glob("*.py") if "\n) -> nn.Module:" in path.read_text()}
    # of windows and spectra the network itself exchanges the axes, of a text the attention; heads and grids are no
    # classes, and several inputs stand as the network takes them
    sources -= {"bc_resnet", "conv1d", "detector", "joint", "segmenter", "streaming_conv", "tc_resnet"}
    sources -= {"padim", "patchcore", "text_transformer"}  # distances are no classes either
    builders = [builder.split(":") for builder, _ in REFERENCE.values()]
    assert sources == {source for source, _ in builders}
    for source, function in builders:
        assert callable(getattr(importlib.import_module(f"edgekit.models.{source}"), function, None)), function


@pytest.mark.parametrize("target", ["tflite", "openvino", "onnx"])
def test_a_pad_as_in_tensorflow_becomes_part_of_its_convolution(target: str, tmp_path: Path) -> None:
    options = {"alpha": 0.1, "last": 16, "padding": "tensorflow"}
    model = save(tmp_path / "model", "edgekit.models.efficientnet_lite:efficientnet_lite0", options, (3, 32, 32))
    assert kinds(convert(model, target, "fp32", tmp_path / "out", (3, 32, 32))) == {}


ONNX_CASES: dict[str, tuple[list[Any], dict[str, int]]] = {
    "a transpose inside": ([("Relu",), ("Transpose", {"perm": [0, 1, 3, 2]}), ("Relu",)], {"transpose": 1}),
    "there and back": (
        [("Relu",), ("Transpose", {"perm": [0, 2, 3, 1]}), ("Transpose", {"perm": [0, 3, 1, 2]}), ("Relu",)],
        {"transpose": 2},
    ),
    "at the input": ([("Transpose", {"perm": [0, 1, 3, 2]}), ("Relu",)], {"outer transpose": 1}),
    "at the output, behind a cast": (
        [("Relu",), ("Cast", {"to": 10}), ("Transpose", {"perm": [0, 1, 3, 2]})],
        {"outer transpose": 1},
    ),
    "of axes of 1": ([("Relu",), ("Transpose", {"perm": [1, 0, 2, 3]}), ("Relu",)], {"reshape": 1}),
    "reshapes that undo each other": (
        [("Relu",), ("Reshape", np.array([1, 32])), ("Reshape", np.array([1, 2, 4, 4])), ("Relu",)],
        {"reshape": 1},
    ),
    "a reshape to its own shape": ([("Relu",), ("Reshape", np.array([1, 2, 4, 4])), ("Relu",)], {"reshape": 1}),
    "a flatten that is needed": ([("Relu",), ("Flatten", {"axis": 1}), ("Relu",)], {}),
    "casts there and back": ([("Relu",), ("Cast", {"to": 10}), ("Cast", {"to": 1}), ("Relu",)], {"cast": 1}),
    "one cast": ([("Relu",), ("Cast", {"to": 11}), ("Relu",)], {}),
    "a notation": ([("Relu",), ("QuantizeLinear", "scale"), ("DequantizeLinear", "scale"), ("Relu",)], {}),
    "quantized twice": (
        [("Relu",), *[("QuantizeLinear", "scale"), ("DequantizeLinear", "scale")] * 2, ("Relu",)],
        {"cast": 1},
    ),
    "identities": ([("Relu",), ("Identity",), ("Add", np.zeros(1, np.float32)), ("Relu",)], {"identity": 2}),
    "an addition": ([("Relu",), ("Add", np.ones(1, np.float32)), ("Relu",)], {}),
    "a pad that its convolution can do": ([("Pad", np.array([0, 0, 1, 1, 0, 0, 1, 1])), ("Conv", 3)], {"pad": 1}),
    "a pad of other numbers": (
        [("Pad", np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.array(1, np.float32)), ("Conv", 3)],
        {},
    ),
    "a pad of channels": ([("Pad", np.array([0, 1, 0, 0, 0, 0, 0, 0])), ("Relu",)], {}),
}


@pytest.mark.parametrize("case", ONNX_CASES)
def test_what_an_onnx_file_carries(case: str) -> None:
    steps, expected = ONNX_CASES[case]
    assert kinds(onnx.read(onnx_file(steps))) == expected


def test_constants_that_could_be_folded_or_shared_and_broadcasts_that_are_not_needed() -> None:
    weights = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    found = onnx.read(onnx_file([("Add", weights), ("Mul", weights), ("Sub", "folded"), ("Div", "expanded")]))
    assert kinds(found) == {"foldable": 2, "copy": 1}
    [copy] = [one for one in found if one.kind == "copy"]
    assert (copy.operator, copy.moved_bytes) == ("constant", 128)
    found = onnx.read(onnx_file([("Relu",), ("Mul", "pooled")]))
    assert kinds(found) == {"broadcast": 1}


OPENVINO_CASES: dict[str, dict[str, int]] = {
    "plain": {},
    "transpose": {"transpose": 1},
    "ones": {"reshape": 2},
    "pad": {"pad": 1},
    "reflect": {},
    "twice quantized": {"cast": 1},
    "casts": {"cast": 1},
    "folded": {"foldable": 1},
    "half weights": {},
}


@pytest.mark.parametrize("case", OPENVINO_CASES)
def test_what_an_openvino_file_carries(case: str, tmp_path: Path) -> None:
    assert kinds(openvino.read(openvino_file(case, tmp_path / "model.xml"))) == OPENVINO_CASES[case]


def test_what_the_cpu_transposes_at_the_input_is_distinguished_from_the_file(tmp_path: Path) -> None:
    found = openvino.read(openvino_file("plain", tmp_path / "model.xml"))
    assert {one.kind for one in found if one.compiled} <= {"outer transpose", "reshape"}
    found = openvino.read(openvino_file("transpose", tmp_path / "turned.xml"))
    assert "transpose" in {one.kind for one in found if one.compiled}


TFLITE_CASES: dict[str, tuple[list[Any], dict[str, int]]] = {
    "a transpose inside": ([("RELU",), ("TRANSPOSE", [0, 2, 1, 3]), ("RELU",)], {"transpose": 1}),
    "at the output": ([("RELU",), ("TRANSPOSE", [0, 2, 1, 3])], {"outer transpose": 1}),
    "of axes of 1": ([("RELU",), ("TRANSPOSE", [1, 0, 2, 3]), ("RELU",)], {"reshape": 1}),
    "quantized inside": (
        [("QUANTIZE", "INT8"), ("RELU",), ("DEQUANTIZE", "FLOAT32"), ("RELU",), ("QUANTIZE", "INT8"), ("RELU",)],
        {"cast": 2},
    ),
    "a pad that SAME would make": ([("PAD", [1, 1]), ("CONV_2D", 1)], {"pad": 1}),
    "a pad that SAME would not make": ([("PAD", [1, 1]), ("CONV_2D", 2)], {}),
    "nothing padded": ([("RELU",), ("PAD", [0, 0]), ("RELU",)], {"identity": 1}),
}


@pytest.mark.parametrize("case", TFLITE_CASES)
def test_what_a_tflite_file_carries(case: str) -> None:
    steps, expected = TFLITE_CASES[case]
    assert kinds(tflite.read(tflite_file(steps))) == expected


def test_names_come_from_the_file_that_still_has_them() -> None:
    steps = [("RELU",), ("TRANSPOSE", [0, 2, 1, 3]), ("RELU",)]
    [without] = tflite.read(tflite_file(steps, named=False))
    [named] = tflite.read(tflite_file(steps, named=False), tflite_file(steps))
    assert (without.where, named.where) == ("RELU 0 → RELU 2", "layer0 → layer2")
