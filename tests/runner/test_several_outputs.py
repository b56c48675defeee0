"""A model with two outputs, on every interpreter and through a bundle: boxes, and logits of classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import backends, bundle, load
from edgekit.runner.boxes import BoxOptions, Decoder
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BackendError, BundleError
from tests.runner.conftest import npy

SHAPE = (32, 48)
POINTS = 4 * 6 + 2 * 3
LABELS = ["red", "white", "platelet"]
OUTPUTS = (
    TensorSpec("boxes", (1, POINTS, 4), "float32", "ANY"),
    TensorSpec("scores", (1, POINTS, 3), "float32", "ANY"),
)
INPUT = TensorSpec("input", (1, 3, *SHAPE), "float32", "NCHW")
ONLY = {"onnx": ("onnxruntime", "openvino"), "openvino": ("openvino",), "tflite": ("litert", "tensorflow")}


def weights() -> tuple[np.ndarray, np.ndarray]:
    """Of a dense layer from the mean of each colour to the outputs: (3, points · 4) and (3, points · 3)."""
    random = np.random.default_rng(5)
    return tuple(random.normal(0, 3, (3, POINTS * width)).astype(np.float32) for width in (4, 3))  # type: ignore[return-value]


def expected_outputs(images: np.ndarray) -> np.ndarray:
    """(n, points, 7) of raw images."""
    means = images.astype(np.float64).mean(axis=(1, 2)) / 255
    parts = [(means @ each.astype(np.float64)).reshape(len(images), POINTS, -1) for each in weights()]
    return np.concatenate(parts, axis=2)


def onnx_model() -> bytes:
    import onnx
    from onnx import helper, numpy_helper

    kinds = [("boxes", 4), ("scores", 3)]
    nodes = [helper.make_node("ReduceMean", ["input"], ["means"], axes=[2, 3], keepdims=0)]
    for name, _ in kinds:
        nodes.append(helper.make_node("MatMul", ["means", f"{name}_w"], [f"{name}_flat"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [name]))
    constants = [numpy_helper.from_array(each, f"{name}_w") for (name, _), each in zip(kinds, weights(), strict=True)]
    constants += [numpy_helper.from_array(np.array([1, POINTS, width]), f"{name}_shape") for name, width in kinds]
    ends = [helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, INPUT.shape)]
    ends += [helper.make_tensor_value_info(each.name, onnx.TensorProto.FLOAT, each.shape) for each in OUTPUTS]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], constants)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


def files(target: str, folder: Path) -> dict[str, bytes]:
    if target == "onnx":
        return {"model.onnx": onnx_model()}
    if target == "openvino":
        import openvino

        openvino.save_model(openvino.Core().read_model(onnx_model(), b""), folder / "m.xml", compress_to_fp16=False)
        return {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}
    import tensorflow as tf

    boxes, scores = weights()

    @tf.function(input_signature=[tf.TensorSpec(INPUT.shape, tf.float32)])
    def run(x: Any) -> dict[str, Any]:
        means = tf.reduce_mean(x, axis=[2, 3])
        return {
            "a_boxes": tf.reshape(means @ boxes, (1, POINTS, 4)), "b_scores": tf.reshape(means @ scores, (1, POINTS, 3))
        }  # fmt: skip

    return {"model.tflite": tf.lite.TFLiteConverter.from_concrete_functions([run.get_concrete_function()]).convert()}


@pytest.fixture(scope="module")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    return {target: files(target, tmp_path_factory.mktemp(target)) for target in ONLY}


def images(count: int = 6) -> np.ndarray:
    random = np.random.default_rng(2)
    bright = random.uniform(0.1, 1, (count, 1, 1, 3))
    return (random.integers(0, 256, (count, *SHAPE, 3)) * bright).astype(np.uint8)


def manifest(target: str, content: dict[str, bytes], **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "name": "cells", "version": "1.0.0", "target": target, "variant": f"baseline-{target}", "task": "detection",
        "raw": RawSpec("image", (*SHAPE, 3), "uint8"), "inputs": (INPUT,), "outputs": OUTPUTS,
        "preprocess": [{"step": "scale", "factor": 1 / 255}], "labels": LABELS, "model_files": sorted(content),
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-4, "top1": False}, "activation": "sigmoid",
        "boxes": BoxOptions(0.3, 0.5, 100)._asdict(),
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


@pytest.fixture(scope="module")
def packed(model_files: dict[str, dict[str, bytes]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle for each target."""
    folder, found = tmp_path_factory.mktemp("bundles"), {}
    for target, content in model_files.items():
        found[target] = folder / f"cells-{target}-1.0.0.edge.zip"
        golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}
        bundle.write(found[target], manifest(target, content), {**content, **golden})
    return found


CASES = [(target, name) for target, names in ONLY.items() for name in names]


@pytest.mark.parametrize(("target", "name"), CASES)
def test_every_interpreter_gives_both_outputs_as_one_array(
    target: str, name: str, model_files: dict[str, dict[str, bytes]]
) -> None:
    backend = backends.open_backend(target, model_files[target], (INPUT,), OUTPUTS, interpreter=name)
    x = np.ascontiguousarray((images() / np.float32(255)).transpose(0, 3, 1, 2), dtype=np.float32)
    found = [backend.run(each[None]) for each in x]
    assert found[0].dtype == np.float32 and found[0].shape == (1, POINTS, 7)
    np.testing.assert_allclose(np.concatenate(found), expected_outputs(images()), atol=1e-4)


@pytest.mark.parametrize(("target", "name"), CASES)
def test_a_file_with_another_number_of_outputs_is_refused(
    target: str, name: str, model_files: dict[str, dict[str, bytes]]
) -> None:
    with pytest.raises(BackendError, match="2 outputs, but the bundle declares 1"):
        backends.open_backend(target, model_files[target], (INPUT,), OUTPUTS[:1], interpreter=name)


@pytest.mark.parametrize("target", ONLY)
def test_a_bundle_answers_with_boxes(target: str, packed: dict[str, Path]) -> None:
    model = load(packed[target], trial=False)
    assert model.selftest().ok
    for image, outputs in zip(images(), expected_outputs(images()), strict=True):
        answer = model.predict(image)
        decoded = Decoder(SHAPE, POINTS, BoxOptions(0.3, 0.5, 100))(outputs.astype(np.float32))
        assert len(decoded.logits) > 0
        assert [each.label for each in answer.boxes] == [LABELS[kind] for kind in decoded.classes]
        np.testing.assert_allclose([each.box for each in answer.boxes], decoded.sides, atol=0.01)


def test_boxes_of_a_file_are_in_the_pixels_of_that_file(
    packed: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice and three times the sample's size, stretched; a sample given as an array has no other size."""
    sample = images(1)[0]
    Image.fromarray(sample).resize((96, 96), Image.Resampling.NEAREST).save(tmp_path / "large.png")
    Image.fromarray(sample).save(tmp_path / "same.png")
    np.save(tmp_path / "sample.npy", sample)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("large.png", "same.png", "sample.npy"):
        assert (
            main(["predict", str(packed["onnx"]), str(tmp_path / name), "--json", "--interpreter", "onnxruntime"]) == 0
        )
        found[name] = json.loads(capsys.readouterr().out)["boxes"]
    assert found["same.png"] == found["sample.npy"] and found["same.png"]
    near, far = (np.array([each["box"] for each in found[name]]) for name in ("same.png", "large.png"))
    assert near.shape == far.shape
    np.testing.assert_allclose(far, near * [2, 3, 2, 3], atol=1.5)


def test_files_in_batches_and_frames_in_a_stream_get_the_same_boxes(packed: dict[str, Path], tmp_path: Path) -> None:
    shown = np.asarray(Image.fromarray(images(1)[0]).resize((96, 96), Image.Resampling.NEAREST))
    Image.fromarray(shown).save(tmp_path / "a.png")
    Image.fromarray(images(1)[0]).save(tmp_path / "b.png")
    fixed = ("--json", "--no-trial", "--interpreter", "openvino")

    def boxes(*arguments: object, stdin: bytes = b"") -> list[Any]:
        command = [sys.executable, "-m", "edgekit.runner", "predict", packed["openvino"], *arguments, *fixed]
        done = subprocess.run([*map(str, command)], input=stdin, capture_output=True, timeout=120, check=True)
        return [json.loads(line)["boxes"] for line in done.stdout.splitlines()]

    one_by_one = boxes(tmp_path)
    assert len(one_by_one) == 2 and one_by_one[0] != one_by_one[1] and all(one_by_one)
    assert boxes(tmp_path, "--batch", 1) == one_by_one
    assert boxes("--stream", "rgb24", "--size", "96x96", stdin=shown.tobytes()) == one_by_one[:1]


def test_people_read_how_many_of_what_and_where(packed: dict[str, Path]) -> None:
    first, *rest = load(packed["onnx"], trial=False).predict(images(1)[0]).lines()
    assert sum(int(part.split()[0]) for part in first.split(", ")) == len(rest)
    assert all("%" in line and " from " in line for line in rest)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["red", "white"]}, r"must be \[points, 6\] when joined"),
        ({"outputs": OUTPUTS[:1]}, r"must be \[points, 7\] when joined"),
        ({"boxes": None}, "boxes: got 'None'; must be an object"),
        ({"boxes": {"overlap": 0.5, "most": 10}}, "missing keys"),
        ({"boxes": {"least_probability": 0, "overlap": 0.5, "most": 10}}, "least_probability: got '0'"),
        ({"boxes": {"least_probability": 0.5, "overlap": 0.5, "most": 0}}, "boxes.most: got '0'"),
        ({"activation": "none"}, "detection: sigmoid"),
        ({"raw": RawSpec("image", (64, 48, 3), "uint8"), "preprocess": [{"step": "resize", "height": 32, "width": 48}]},
         "the sample has"),
        ({"task": "classification", "activation": "softmax", "boxes": None}, "the task classification has one"),
        ({"inputs": (INPUT, INPUT)}, "a sample is of kind tensors"),
        ({"outputs": (OUTPUTS[0], TensorSpec("boxes", (1, POINTS, 3), "float32", "ANY"))}, "names of their own"),
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_hold_together_is_refused(
    changes: dict[str, Any], message: str, model_files: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    content = model_files["onnx"]
    golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}
    with pytest.raises(BundleError, match=message):
        bundle.write(tmp_path / "b.edge.zip", manifest("onnx", content, **changes), {**content, **golden})
    assert not list(tmp_path.iterdir())
